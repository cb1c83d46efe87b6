"""Blocks of real networks in small: detection heads, attention, U-Net, ConvNeXt, residual branches ..."""

from __future__ import annotations

from tests.conformance.case import Case

CASES = [
    Case(
        "ssd_head",
        "float[1,4,4,4] x",
        "a = Conv<pads=[1,1,1,1]>(x, w)\nb = MaxPool<kernel_shape=[2,2], strides=[2,2]>(a)\n"
        "c = Conv<pads=[1,1,1,1]>(b, w)\nd = Transpose<perm=[0,2,3,1]>(a)\ne = Reshape(d, s)\n"
        "f = Transpose<perm=[0,2,3,1]>(c)\ng = Reshape(f, s)\nh = Concat<axis=1>(e, g)\n"
        "y = Softmax<axis=-1>(h)",
        "float[4,4,3,3] w, int64[3] s = {1,-1,2}",
    ),
    Case(
        "yolo_head",
        "float[1,4,4,4] x",
        "a = Conv<pads=[1,1,1,1]>(x, w)\nb = MaxPool<kernel_shape=[2,2], strides=[2,2]>(a)\n"
        "c = Conv(b, v)\nd = Conv(a, v)\ne = Reshape(d, s)\nf = Reshape(c, s)\n"
        "g = Concat<axis=2>(e, f)\ny = Transpose<perm=[0,2,1]>(g)",
        "float[4,4,3,3] w, float[6,4,1,1] v, int64[3] s = {1,6,-1}",
    ),
    Case(
        "dfl",
        "float[1,8,5] x",
        "r = Reshape(x, s)\nt = Transpose<perm=[0,2,1,3]>(r)\nm = Softmax<axis=1>(t)\n"
        "c = Conv(m, k)\ny = Reshape(c, u)",
        "int64[4] s = {1,4,2,5}, float[1,2,1,1] k = {0.0, 1.0}, int64[3] u = {1,4,5}",
    ),
    Case(
        "focus_conv",
        "float[1,3,8,8] x",
        "\n".join(f"s{i} = Slice(x, b{i}, e, a, t)" for i in range(4))
        + "\nc = Concat<axis=1>(s0, s1, s2, s3)\ny = Conv<pads=[1,1,1,1]>(c, w)",
        "int64[2] b0 = {0,0}, int64[2] b1 = {1,0}, int64[2] b2 = {0,1}, int64[2] b3 = {1,1}, "
        "int64[2] e = {8,8}, int64[2] a = {2,3}, int64[2] t = {2,2}, float[4,12,3,3] w",
    ),
    Case(
        "attention",
        "float[1,5,8] x",
        "q = MatMul(x, wq)\nk = MatMul(x, wk)\nv = MatMul(x, wv)\nqr = Reshape(q, s)\n"
        "kr = Reshape(k, s)\nvr = Reshape(v, s)\nqt = Transpose<perm=[0,2,1,3]>(qr)\n"
        "kt = Transpose<perm=[0,2,3,1]>(kr)\nvt = Transpose<perm=[0,2,1,3]>(vr)\n"
        "p = MatMul(qt, kt)\nd = Div(p, root)\na = Softmax<axis=-1>(d)\no = MatMul(a, vt)\n"
        "ot = Transpose<perm=[0,2,1,3]>(o)\nr = Reshape(ot, u)\nm = MatMul(r, wo)\n"
        "y = Add(m, x)",
        "float[8,8] wq, float[8,8] wk, float[8,8] wv, float[8,8] wo, int64[4] s = {1,5,2,4}, "
        "int64[3] u = {1,5,8}, float root = {2.0}",
    ),
    Case(
        "attention_mask",
        "float[1,5,8] x, float[1,1,5,5] mask",
        "q = MatMul(x, wq)\nqr = Reshape(q, s)\nqt = Transpose<perm=[0,2,1,3]>(qr)\n"
        "kt = Transpose<perm=[0,2,3,1]>(qr)\np = MatMul(qt, kt)\nd = Mul(p, scale)\n"
        "m = Add(d, mask)\na = Softmax<axis=-1>(m)\no = MatMul(a, qt)\n"
        "ot = Transpose<perm=[0,2,1,3]>(o)\ny = Reshape(ot, u)",
        "float[8,8] wq, int64[4] s = {0,0,2,4}, int64[3] u = {0,0,8}, float scale = {0.5}",
    ),
    Case(
        "attention_packed_qkv",
        "float[1,5,8] x",
        "p = MatMul(x, w)\nb = Add(p, c)\nr = Reshape(b, s)\n"
        "t = Transpose<perm=[2,0,3,1,4]>(r)\nq = Gather<axis=0>(t, i0)\n"
        "k = Gather<axis=0>(t, i1)\nv = Gather<axis=0>(t, i2)\n"
        "kt = Transpose<perm=[0,1,3,2]>(k)\nqk = MatMul(q, kt)\na = Softmax<axis=-1>(qk)\n"
        "o = MatMul(a, v)\not = Transpose<perm=[0,2,1,3]>(o)\ny = Reshape(ot, u)",
        "float[8,24] w, float[24] c, int64[5] s = {1,5,3,2,4}, int64 i0 = {0}, "
        "int64 i1 = {1}, int64 i2 = {2}, int64[3] u = {1,5,8}",
    ),
    Case(
        "attention_split_qkv",
        "float[1,4,8] x",
        "p = MatMul(x, w)\nq, k, v = Split<axis=-1, num_outputs=3>(p)\nqr = Reshape(q, s)\n"
        "kr = Reshape(k, s)\nvr = Reshape(v, s)\nqt = Transpose<perm=[0,2,1,3]>(qr)\n"
        "kt = Transpose<perm=[0,2,3,1]>(kr)\nvt = Transpose<perm=[0,2,1,3]>(vr)\n"
        "qk = MatMul(qt, kt)\na = Softmax<axis=-1>(qk)\no = MatMul(a, vt)\n"
        "ot = Transpose<perm=[0,2,1,3]>(o)\ny = Reshape(ot, u)",
        "float[8,24] w, int64[4] s = {1,4,2,4}, int64[3] u = {1,4,8}",
    ),
    Case(
        "attention_of_conv",
        "float[1,4,4,4] x",
        "q = Conv(x, wq)\nk = Conv(x, wk)\nv = Conv(x, wv)\nqr = Reshape(q, s)\n"
        "kr = Reshape(k, s)\nvr = Reshape(v, s)\nqt = Transpose<perm=[0,2,1]>(qr)\n"
        "p = MatMul(qt, kr)\na = Softmax<axis=-1>(p)\nat = Transpose<perm=[0,2,1]>(a)\n"
        "o = MatMul(vr, at)\nr = Reshape(o, u)\ny = Add(r, x)",
        "float[4,4,1,1] wq, float[4,4,1,1] wk, float[4,4,1,1] wv, int64[3] s = {1,4,16}, "
        "int64[4] u = {1,4,4,4}",
    ),
    Case(
        "patch_embedding",
        "float[1,3,8,8] x",
        "c = Conv<strides=[4,4]>(x, w, b)\nr = Reshape(c, s)\nt = Transpose<perm=[0,2,1]>(r)\n"
        "k = Concat<axis=1>(cls, t)\ny = Add(k, pos)",
        "float[4,3,4,4] w, float[4] b, int64[3] s = {1,4,4}, float[1,1,4] cls, float[1,5,4] pos",
    ),
    Case(
        "mlp",
        "float[1,5,8] x",
        "n = LayerNormalization(x, g, b)\nh = MatMul(n, w)\na = Add(h, c)\ne = Gelu(a)\n"
        "m = MatMul(e, v)\nd = Add(m, k)\ny = Add(x, d)",
        "float[8] g, float[8] b, float[8,16] w, float[16] c, float[16,8] v, float[8] k",
    ),
    Case(
        "convnext_block",
        "float[1,4,6,6] x",
        "d = Conv<pads=[3,3,3,3], group=4>(x, w)\nt = Transpose<perm=[0,2,3,1]>(d)\n"
        "n = LayerNormalization(t, g, b)\nh = MatMul(n, u)\ne = Gelu(h)\nm = MatMul(e, v)\n"
        "q = Mul(m, s)\nr = Transpose<perm=[0,3,1,2]>(q)\ny = Add(x, r)",
        "float[4,1,7,7] w, float[4] g, float[4] b, float[4,8] u, float[8,4] v, float[4] s",
    ),
    Case(
        "crnn_neck",
        "float[1,3,4,8] x",
        "c = Conv<pads=[1,1,1,1]>(x, w)\np = AveragePool<kernel_shape=[4,1]>(c)\n"
        "s = Squeeze(p, a)\nt = Transpose<perm=[0,2,1]>(s)\nm = MatMul(t, k)\n"
        "y = Softmax<axis=2>(m)",
        "float[4,3,3,3] w, int64[1] a = {2}, float[4,6] k",
    ),
    Case(
        "conv1d_chain",
        "float[1,3,16] x",
        "a = Conv<pads=[1,1]>(x, w)\nr = Relu(a)\n"
        "p = MaxPool<kernel_shape=[2], strides=[2]>(r)\nb = Conv(p, v)\n"
        "t = Transpose<perm=[0,2,1]>(b)\ny = MatMul(t, k)",
        "float[4,3,3] w, float[5,4,3] v, float[5,2] k",
    ),
    Case(
        "conv1d_batch_is_channels",
        "float[3,3,3] x",
        "a = Conv<pads=[1,1]>(x, w)\nt = Transpose<perm=[0,2,1]>(a)\ny = Add(a, t)",
        "float[3,3,3] w",
    ),
    Case(
        "conv1d_to_conv2d",
        "float[1,4,6] x",
        "a = Conv<pads=[1,1]>(x, w)\nu = Unsqueeze(a, e)\nb = Conv(u, v)\ny = Squeeze(b, e)",
        "float[4,4,3] w, int64[1] e = {2}, float[3,4,1,2] v",
    ),
    Case(
        "conv3d_chain",
        "float[1,2,3,4,4] x",
        "a = Conv<pads=[1,1,1,1,1,1]>(x, w)\nr = Relu(a)\nb = ReduceMean<keepdims=0>(r, d)\ny = Conv(b, v)",
        "float[4,2,3,3,3] w, int64[1] d = {2}, float[3,4,1,1] v",
    ),
    Case(
        "nhwc_model",
        "float[1,4,4,3] x",
        "t = Transpose<perm=[0,3,1,2]>(x)\nc = Conv<pads=[1,1,1,1]>(t, w)\nr = Relu(c)\n"
        "d = Conv(r, v)\ny = Transpose<perm=[0,2,3,1]>(d)",
        "float[4,3,3,3] w, float[2,4,1,1] v",
    ),
    Case(
        "unet",
        "float[1,4,8,8] x",
        "a = Conv<pads=[1,1,1,1]>(x, w)\np = MaxPool<kernel_shape=[2,2], strides=[2,2]>(a)\n"
        "b = Conv<pads=[1,1,1,1]>(p, w)\nu = ConvTranspose<strides=[2,2]>(b, t)\n"
        "k = Concat<axis=1>(u, a)\nc = Conv(k, v)\ny = Sigmoid(c)",
        "float[4,4,3,3] w, float[4,4,2,2] t, float[1,8,1,1] v",
    ),
    Case(
        "residual_projection",
        "float[1,4,8,8] x",
        "a = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w)\nr = Relu(a)\n"
        "b = Conv<pads=[1,1,1,1]>(r, v)\ns = Conv<strides=[2,2]>(x, u)\nd = Add(b, s)\n"
        "y = Relu(d)",
        "float[4,4,3,3] w, float[4,4,3,3] v, float[4,4,1,1] u",
    ),
    Case(
        "transposed_branches",
        "float[1,4,4,4] x",
        "a = Conv(x, w)\nb = Conv(x, v)\nat = Transpose<perm=[0,2,1,3]>(a)\n"
        "bt = Transpose<perm=[0,2,1,3]>(b)\ns = Add(at, bt)\ny = Transpose<perm=[0,2,1,3]>(s)",
        "float[4,4,1,1] w, float[4,4,1,1] v",
    ),
    Case(
        "transposed_branches_differ",
        "float[1,4,4,4] x",
        "a = Conv(x, w)\nb = Conv(x, v)\nat = Transpose<perm=[0,2,1,3]>(a)\n"
        "bt = Transpose<perm=[0,3,2,1]>(b)\ns = Mul(at, bt)\ny = Conv(s, w)",
        "float[4,4,1,1] w, float[4,4,1,1] v",
    ),
    Case(
        "reshape_merges_channel_height",
        "float[1,4,4,4] x",
        "a = Conv(x, w)\nr = Reshape(a, s)\ny = Softmax<axis=1>(r)",
        "float[4,4,1,1] w, int64[3] s = {1,16,4}",
    ),
    Case(
        "reshape_splits_width",
        "float[1,4,4,4] x",
        "a = Conv(x, w)\nr = Reshape(a, s)\nb = ReduceMax<keepdims=0>(r, e)\ny = Relu(b)",
        "float[4,4,1,1] w, int64[5] s = {1,4,4,2,2}, int64[1] e = {4}",
    ),
    Case(
        "reshape_is_a_lie",
        "float[1,4,4,4] x",
        "a = Conv(x, w)\nr = Reshape(a, s)\ny = Conv(r, v)",
        "float[4,4,1,1] w, int64[4] s = {1,2,8,4}, float[3,2,1,1] v",
    ),
    Case(
        "matmul_relative_positions",
        "float[1,2,4,4] x",
        "t = Transpose<perm=[0,1,3,2]>(x)\nm = MatMul(x, t)\na = Add(m, bias)\n"
        "s = Softmax<axis=-1>(a)\ny = MatMul(s, x)",
        "float[1,2,4,4] bias",
    ),
    Case(
        "two_inputs_two_layouts",
        "float[1,4,4,4] a, float[1,4,4,4] b",
        "c = Conv(a, w)\nt = Transpose<perm=[0,2,3,1]>(b)\ns = Add(c, t)\nr = Reshape(s, k)\n"
        "y = MatMul(r, v)",
        "float[4,4,1,1] w, int64[3] k = {1,4,16}, float[16,3] v",
    ),
    Case(
        "scores_and_boxes",
        "float[1,4,4,4] x",
        "a = Conv<pads=[1,1,1,1]>(x, w)\ns = Conv(a, k)\nb = Conv(a, v)\np = Sigmoid(s)\n"
        "e = Exp(b)\ny = Identity(p)\nz = Mul(e, stride)",
        "float[4,4,3,3] w, float[1,4,1,1] k, float[4,4,1,1] v, float stride = {4.0}",
        outputs="y, z",
    ),
    Case(
        "quantized_shuffle",
        "float[1,4,4,4] x",
        "q = QuantizeLinear(x, s, z)\nd = DequantizeLinear(q, s, z)\nr = Reshape(d, a)\n"
        "t = Transpose<perm=[0,2,1,3,4]>(r)\nq1 = QuantizeLinear(t, s, z)\n"
        "d1 = DequantizeLinear(q1, s, z)\nu = Reshape(d1, b)\ny = Conv(u, w)",
        "float s = {0.03}, int8 z = {2}, int64[5] a = {1,2,2,4,4}, int64[4] b = {1,4,4,4}, float[3,4,1,1] w",
        snr_db=28.0,
    ),
]
