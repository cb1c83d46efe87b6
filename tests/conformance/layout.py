"""What follows a convolution, to stress the propagation of layouts: a guess by size is wrong here.

Sizes are ambiguous on purpose (N == C, H == W == C), and each chain mixes ops that want channels last with
ops that fix the logical order.
"""

from __future__ import annotations

from tests.conformance.case import Case

CONV = "c = Conv<pads=[1,1,1,1]>(x, w)"
CUBE = "float[1,4,4,4] x"
W44 = "float[4,4,3,3] w"

# After a convolution of 1x4x4x4 (H == W == C): name, nodes from c to y, constants
AFTER = [
    ("reshape_3d", "y = Reshape(c, s)", "int64[3] s = {1,4,16}"),
    ("reshape_3d_transpose", "r = Reshape(c, s)\ny = Transpose<perm=[0,2,1]>(r)", "int64[3] s = {1,4,16}"),
    (
        "reshape_transpose_softmax",
        "r = Reshape(c, s)\nt = Transpose<perm=[0,2,1]>(r)\ny = Softmax<axis=-1>(t)",
        "int64[3] s = {1,4,16}",
    ),
    (
        "reshape_transpose_reshape",
        "r = Reshape(c, s)\nt = Transpose<perm=[0,2,1]>(r)\ny = Reshape(t, u)",
        "int64[3] s = {1,4,16}, int64[3] u = {1,8,8}",
    ),
    ("transpose_nhwc", "y = Transpose<perm=[0,2,3,1]>(c)", ""),
    ("transpose_nwch", "y = Transpose<perm=[0,3,1,2]>(c)", ""),
    ("transpose_hw", "y = Transpose<perm=[0,1,3,2]>(c)", ""),
    ("transpose_reshape", "t = Transpose<perm=[0,2,3,1]>(c)\ny = Reshape(t, s)", "int64[3] s = {1,16,4}"),
    (
        "transpose_reshape_boxes",
        "t = Transpose<perm=[0,2,3,1]>(c)\ny = Reshape(t, s)",
        "int64[3] s = {1,32,2}",
    ),
    ("flatten", "y = Flatten(c)", ""),
    ("flatten_gemm", "f = Flatten(c)\ny = Gemm<transB=1>(f, g, b)", "float[5,64] g, float[5] b"),
    ("flatten_relu_gemm", "r = Relu(c)\nf = Flatten(r)\ny = Gemm(f, g)", "float[64,5] g"),
    ("reshape_gemm", "f = Reshape(c, s)\ny = Gemm<transB=1>(f, g)", "int64[2] s = {1,-1}, float[5,64] g"),
    ("flatten_matmul_softmax", "f = Flatten(c)\nm = MatMul(f, g)\ny = Softmax(m)", "float[64,5] g"),
    (
        "pool_flatten_gemm",
        "p = GlobalAveragePool(c)\nf = Flatten(p)\ny = Gemm<transB=1>(f, g)",
        "float[5,4] g",
    ),
    (
        "mean_gemm",
        "p = ReduceMean<keepdims=0>(c, a)\ny = Gemm<transB=1>(p, g)",
        "int64[2] a = {2,3}, float[5,4] g",
    ),
    ("matmul_over_width", "y = MatMul(c, g)", "float[4,5] g"),
    ("matmul_over_height", "y = MatMul(g, c)", "float[5,4] g"),
    ("matmul_itself", "y = MatMul(c, c)", ""),
    ("softmax_channel", "y = Softmax<axis=1>(c)", ""),
    ("softmax_height", "y = Softmax<axis=2>(c)", ""),
    ("softmax_width", "y = Softmax<axis=3>(c)", ""),
    ("argmax_channel", "y = ArgMax<axis=1, keepdims=0>(c)", ""),
    ("add_row", "y = Add(c, k)", "float[4] k"),
    ("add_column", "y = Add(c, k)", "float[4,1] k"),
    ("add_channel", "y = Add(c, k)", "float[4,1,1] k"),
    ("add_plane", "y = Add(c, k)", "float[4,4] k"),
    ("add_volume", "y = Add(c, k)", "float[4,4,4] k"),
    ("add_5d", "y = Add(c, k)", "float[2,1,4,4,4] k"),
    ("sub_constant_left", "y = Sub(k, c)", "float[4,4,4] k"),
    ("prelu_row", "y = PRelu(c, k)", "float[4] k"),
    ("prelu_channel", "y = PRelu(c, k)", "float[4,1,1] k"),
    ("add_transposed_itself", "t = Transpose<perm=[0,1,3,2]>(c)\ny = Add(c, t)", ""),
    ("add_transposed_channel", "t = Transpose<perm=[0,2,3,1]>(c)\ny = Add(t, c)", ""),
    ("add_input", "y = Add(c, x)", ""),
    ("add_input_transposed", "t = Transpose<perm=[0,2,3,1]>(x)\ny = Add(c, t)", ""),
    ("concat_input_channel", "y = Concat<axis=1>(c, x)", ""),
    ("concat_input_height", "y = Concat<axis=2>(x, c)", ""),
    ("concat_input_width", "y = Concat<axis=-1>(c, x, c)", ""),
    ("concat_input_batch", "y = Concat<axis=0>(c, x)", ""),
    ("concat_transposed", "t = Transpose<perm=[0,2,3,1]>(c)\ny = Concat<axis=1>(c, t)", ""),
    ("concat_constant", "y = Concat<axis=1>(c, k)", "float[1,2,4,4] k"),
    ("split_channel", "y, z = Split<axis=1, num_outputs=2>(c)", ""),
    ("split_width", "y, z = Split<axis=3, num_outputs=2>(c)", ""),
    ("slice_channel", "y = Slice(c, b, e, a)", "int64[1] b = {1}, int64[1] e = {3}, int64[1] a = {1}"),
    (
        "slice_width_steps",
        "y = Slice(c, b, e, a, t)",
        "int64[1] b = {0}, int64[1] e = {4}, int64[1] a = {3}, int64[1] t = {2}",
    ),
    ("gather_channel", "y = Gather<axis=1>(c, i)", "int64[2] i = {3,1}"),
    ("gather_channel_scalar", "y = Gather<axis=1>(c, i)", "int64 i = {2}"),
    ("gather_width", "y = Gather<axis=3>(c, i)", "int64[2] i = {3,1}"),
    ("pad_channel", "y = Pad(c, p)", "int64[8] p = {0,1,0,0,0,0,0,2}"),
    ("tile_channel", "y = Tile(c, r)", "int64[4] r = {1,2,1,1}"),
    ("expand_batch", "y = Expand(c, s)", "int64[4] s = {3,1,1,1}"),
    ("expand_5d", "y = Expand(c, s)", "int64[5] s = {2,1,4,4,4}"),
    ("reduce_channel", "y = ReduceMean(c, a)", "int64[1] a = {1}"),
    ("reduce_channel_squeezed", "y = ReduceMax<keepdims=0>(c, a)", "int64[1] a = {1}"),
    ("reduce_height_squeezed", "y = ReduceSum<keepdims=0>(c, a)", "int64[1] a = {2}"),
    ("cumsum_channel", "y = CumSum(c, a)", "int64 a = {1}"),
    ("unsqueeze", "y = Unsqueeze(c, a)", "int64[1] a = {2}"),
    ("unsqueeze_squeeze", "u = Unsqueeze(c, a)\nr = Relu(u)\ny = Squeeze(r, a)", "int64[1] a = {2}"),
    ("squeeze_batch", "y = Squeeze(c, a)", "int64[1] a = {0}"),
    ("squeeze_matmul", "s = Squeeze(c, a)\ny = MatMul(s, k)", "int64[1] a = {0}, float[4,4] k"),
    ("layer_norm_width", "y = LayerNormalization(c, g)", "float[4] g"),
    (
        "layer_norm_channel",
        "t = Transpose<perm=[0,2,3,1]>(c)\nn = LayerNormalization(t, g, b)\ny = Transpose<perm=[0,3,1,2]>(n)",
        "float[4] g, float[4] b",
    ),
    ("layer_norm_all", "y = LayerNormalization<axis=1>(c, g)", "float[4,4,4] g"),
    (
        "layer_norm_channel_conv",
        "t = Transpose<perm=[0,2,3,1]>(c)\nn = LayerNormalization(t, g, b)\nm = MatMul(n, p)\n"
        "u = Transpose<perm=[0,3,1,2]>(m)\ny = Add(u, c)",
        "float[4] g, float[4] b, float[4,4] p",
    ),
    ("instance_norm", "y = InstanceNormalization(c, g, b)", "float[4] g, float[4] b"),
    ("lrn", "y = LRN<size=3, alpha=0.9>(c)", ""),
    ("depth_to_space_dcr", "y = DepthToSpace<blocksize=2>(c)", ""),
    ("depth_to_space_crd", 'y = DepthToSpace<blocksize=2, mode="CRD">(c)', ""),
    (
        "depth_to_space_crd_conv",
        'd = DepthToSpace<blocksize=2, mode="CRD">(c)\ny = Conv(d, k)',
        "float[3,1,2,2] k",
    ),
    ("space_to_depth", "y = SpaceToDepth<blocksize=2>(c)", ""),
    (
        "pixel_shuffle_spelled",
        "r = Reshape(c, s)\nt = Transpose<perm=[0,1,4,2,5,3]>(r)\ny = Reshape(t, u)",
        "int64[6] s = {1,1,2,2,4,4}, int64[4] u = {1,1,8,8}",
    ),
    (
        "shuffle",
        "r = Reshape(c, s)\nt = Transpose<perm=[0,2,1,3,4]>(r)\ny = Reshape(t, u)",
        "int64[5] s = {1,2,2,4,4}, int64[4] u = {1,4,4,4}",
    ),
    (
        "shuffle_conv",
        "r = Reshape(c, s)\nt = Transpose<perm=[0,2,1,3,4]>(r)\nu = Reshape(t, o)\ny = Conv<group=2>(u, k)",
        "int64[5] s = {1,2,2,4,4}, int64[4] o = {1,4,4,4}, float[4,2,1,1] k",
    ),
    (
        "split_heads_5d",
        "r = Reshape(c, s)\nt = Transpose<perm=[2,0,3,4,1]>(r)\ny = Softmax<axis=-1>(t)",
        "int64[5] s = {1,2,2,4,4}",
    ),
    (
        "window_partition",
        "t = Transpose<perm=[0,2,3,1]>(c)\nr = Reshape(t, s)\n"
        "p = Transpose<perm=[0,1,3,2,4,5]>(r)\ny = Reshape(p, u)",
        "int64[6] s = {1,2,2,2,2,4}, int64[3] u = {4,4,4}",
    ),
    (
        "window_and_back",
        "t = Transpose<perm=[0,2,3,1]>(c)\nr = Reshape(t, s)\n"
        "p = Transpose<perm=[0,1,3,2,4,5]>(r)\nv = Reshape(p, u)\ng = MatMul(v, k)\n"
        "h = Reshape(g, z)\ni = Transpose<perm=[0,1,3,2,4,5]>(h)\nj = Reshape(i, o)\n"
        "l = Transpose<perm=[0,3,1,2]>(j)\ny = Add(l, c)",
        "int64[6] s = {1,2,2,2,2,4}, int64[3] u = {4,4,4}, float[4,4] k, "
        "int64[6] z = {1,2,2,2,2,4}, int64[4] o = {1,4,4,4}",
    ),
    (
        "squeeze_excite",
        "p = GlobalAveragePool(c)\na = Conv(p, k)\nr = Relu(a)\nb = Conv(r, m)\n"
        "s = HardSigmoid(b)\ny = Mul(c, s)",
        "float[2,4,1,1] k, float[4,2,1,1] m",
    ),
    (
        "squeeze_excite_gemm",
        "p = ReduceMean<keepdims=0>(c, a)\ng = Gemm<transB=1>(p, k)\ns = Sigmoid(g)\n"
        "u = Unsqueeze(s, e)\ny = Mul(u, c)",
        "int64[2] a = {2,3}, float[4,4] k, int64[2] e = {2,3}",
    ),
    (
        "spatial_attention",
        "m = ReduceMax(c, a)\nn = ReduceMean(c, a)\nt = Concat<axis=1>(m, n)\n"
        "k = Conv<pads=[1,1,1,1]>(t, v)\ns = Sigmoid(k)\ny = Mul(c, s)",
        "int64[1] a = {1}, float[1,2,3,3] v",
    ),
    ("where", "g = Greater(c, k)\ny = Where(g, c, x)", "float[4,1] k"),
    (
        "where_mask_transposed",
        "t = Transpose<perm=[0,1,3,2]>(c)\ng = Greater(t, k)\ny = Where(g, c, x)",
        "float k = {0.0}",
    ),
    (
        "three_uses",
        "t = Transpose<perm=[0,2,3,1]>(c)\nr = Reshape(c, s)\nk = Conv(c, v)\ny = Relu(t)\n"
        "z = Softmax(r)\nu = Sigmoid(k)",
        "int64[2] s = {4,16}, float[3,4,1,1] v",
    ),
]
SEVERAL = {"split_channel": "y, z", "split_width": "y, z", "three_uses": "y, z, u"}

CASES = [
    *(
        Case(
            f"conv_{n}", CUBE, f"{CONV}\n{body}", f"{W44}{', ' if k else ''}{k}", outputs=SEVERAL.get(n, "y")
        )
        for n, body, k in AFTER
    ),
    # The same, four images at once: N == C == H == W. Left out: shapes that are written for one image.
    *(
        Case(
            f"batch_{n}",
            "float[4,4,4,4] x",
            f"{CONV}\n{body}",
            f"{W44}{', ' if k else ''}{k}",
            outputs=SEVERAL.get(n, "y"),
        )
        for n, body, k in AFTER
        if "Reshape(" not in body
        and "expand" not in n
        and "squeeze_batch" not in n
        and "squeeze_matmul" not in n
        and n != "concat_constant"
        and n != "add_5d"
    ),
]
