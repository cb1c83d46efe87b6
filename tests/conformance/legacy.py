"""Forms of old opsets (7 to 12) that files in the field still have."""

from __future__ import annotations

from tests.conformance.case import Case

IMAGE = "float[1,3,4,6] x"
BATCHNORM = "float[3] scale, float[3] shift, float[3] mean, float[3] var"

CASES = [
    # Before opset 13 Softmax flattens the input to 2-D at its axis.
    *(
        Case(f"{op.lower()}_{opset}_axis{axis}", "float[2,3,4,2] x", f"y = {op}<axis={axis}>(x)", opset=opset)
        for op in ("Softmax", "LogSoftmax")
        for opset in (7, 11, 12)
        for axis in (1, 2, 3)
    ),
    Case("softmax_9_default", "float[2,3,4] x", "y = Softmax(x)", opset=9),
    Case("softmax_11_negative", "float[2,3,4] x", "y = Softmax<axis=-1>(x)", opset=11),
    Case("hardmax_11", "float[2,3,4] x", "y = Hardmax<axis=1>(x)", opset=11),
    *(
        Case(f"clip_{opset}_{n}", IMAGE, f"y = Clip{a}(x)", opset=opset, ranges={"x": (-8, 8)})
        for opset in (7, 9, 10)
        for n, a in (
            ("relu6", "<min=0.0, max=6.0>"),
            ("low_only", "<min=-0.5>"),
            ("high_only", "<max=0.5>"),
            ("none", ""),
        )
    ),
    Case(
        "clip_11",
        IMAGE,
        "y = Clip(x, low, high)",
        "float low = {0.0}, float high = {6.0}",
        opset=11,
        ranges={"x": (-8, 8)},
    ),
    *(
        Case(f"slice_{opset}_{n}", "float[1,4,6,6] x", f"y = Slice<{a}>(x)", opset=opset)
        for opset in (7, 9)
        for n, a in (
            ("axes", "axes=[2,3], starts=[1,0], ends=[4,5]"),
            ("negative", "axes=[1], starts=[-2], ends=[9223372036854775807]"),
            ("no_axes", "starts=[0,1], ends=[1,3]"),
        )
    ),
    Case(
        "slice_10_steps",
        "float[1,3,8,8] x",
        "y = Slice(x, b, e, a, t)",
        "int64[2] b = {0,1}, int64[2] e = {8,8}, int64[2] a = {2,3}, int64[2] t = {2,2}",
        opset=10,
    ),
    *(
        Case(f"pad_{opset}_{n}", IMAGE, f"y = Pad<{a}>(x)", opset=opset)
        for opset in (7, 10)
        for n, a in (
            ("zeros", "pads=[0,0,1,2,0,0,2,1]"),
            ("value", "pads=[0,0,1,2,0,0,2,1], value=1.5"),
            ("reflect", 'mode="reflect", pads=[0,0,1,2,0,0,2,1]'),
            ("edge", 'mode="edge", pads=[0,0,1,2,0,0,2,1]'),
        )
    ),
    Case("pad_11", IMAGE, "y = Pad(x, p, v)", "int64[8] p = {0,0,1,2,0,0,2,1}, float v = {0.5}", opset=11),
    *(
        Case(
            f"upsample_7_{mode}",
            IMAGE,
            f'y = Upsample<mode="{mode}", scales=[1.0, 1.0, 2.0, 2.0]>(x)',
            opset=7,
        )
        for mode in ("nearest", "linear")
    ),
    *(
        Case(
            f"upsample_9_{mode}",
            IMAGE,
            f'y = Upsample<mode="{mode}">(x, k)',
            "float[4] k = {1.0, 1.0, 2.0, 3.0}",
            opset=9,
        )
        for mode in ("nearest", "linear")
    ),
    *(
        Case(
            f"resize_10_{mode}",
            IMAGE,
            f'y = Resize<mode="{mode}">(x, k)',
            "float[4] k = {1.0, 1.0, 2.0, 2.0}",
            opset=10,
        )
        for mode in ("nearest", "linear")
    ),
    Case(
        "resize_10_nearest_down",
        IMAGE,
        'y = Resize<mode="nearest">(x, k)',
        "float[4] k = {1.0, 1.0, 0.5, 0.5}",
        opset=10,
    ),
    *(
        Case(
            f"resize_11_{mode}_{c}",
            IMAGE,
            f'y = Resize<mode="{mode}", coordinate_transformation_mode="{c}">(x, r, k)',
            "float[8] r = {0.0,0.0,0.0,0.0,1.0,1.0,1.0,1.0}, float[4] k = {1.0, 1.0, 2.0, 2.0}",
            opset=11,
        )
        for mode in ("nearest", "linear")
        for c in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    ),
    Case(
        "resize_11_tf_half_pixel_for_nn",
        IMAGE,
        'y = Resize<mode="nearest", coordinate_transformation_mode="tf_half_pixel_for_nn">(x, r, k)',
        "float[8] r = {0.0,0.0,0.0,0.0,1.0,1.0,1.0,1.0}, float[4] k = {1.0, 1.0, 2.0, 2.0}",
        opset=11,
    ),
    Case(
        "resize_11_empty_roi_scales",
        IMAGE,
        'y = Resize<mode="linear">(x, r, k, s)',
        "float[0] r = {}, float[0] k = {}, int64[4] s = {1,3,8,9}",
        opset=11,
    ),
    *(
        Case(f"squeeze_{opset}_{n}", "float[1,3,1,5] x", f"y = Squeeze{a}(x)", opset=opset)
        for opset, n, a in ((7, "axes", "<axes=[0,2]>"), (11, "negative", "<axes=[-2]>"), (9, "all", ""))
    ),
    *(
        Case(f"unsqueeze_{opset}_{n}", "float[3,5] x", f"y = Unsqueeze<axes={a}>(x)", opset=opset)
        for opset, n, a in ((7, "two", "[0,3]"), (11, "negative", "[-1]"))
    ),
    *(
        Case(
            f"batch_norm_{opset}",
            IMAGE,
            "y = BatchNormalization<epsilon=0.01>(x, scale, shift, mean, var)",
            BATCHNORM,
            opset=opset,
            ranges={"var": (0.3, 2.0)},
        )
        for opset in (7, 9, 14)
    ),
    *(
        Case(f"dropout_{opset}", IMAGE, "d = Dropout<ratio=0.7>(x)\ny = Relu(d)", opset=opset)
        for opset in (7, 10)
    ),
    Case("dropout_12", IMAGE, "d = Dropout(x, r)\ny = Relu(d)", "float r = {0.7}", opset=12),
    *(
        Case(f"split_{opset}_{n}", "float[1,6,4] x", f"{out} = Split<{a}>(x)", opset=opset, outputs=out)
        for opset, n, a, out in (
            (7, "uneven", "axis=1, split=[2,4]", "y, z"),
            (11, "equal", "axis=1", "y, z, u"),
            (11, "negative", "axis=-1, split=[1,3]", "y, z"),
        )
    ),
    *(
        Case(f"reduce_{op.lower()}_{opset}_{n}", "float[2,3,4] x", f"y = Reduce{op}{a}(x)", opset=opset)
        for op in ("Sum", "Mean", "Max")
        for opset, n, a in (
            (7, "axes", "<axes=[1,2]>"),
            (11, "negative", "<axes=[-1], keepdims=0>"),
            (12, "all", ""),
        )
    ),
    *(
        Case(
            f"average_pool_{opset}_{n}",
            IMAGE,
            f"y = AveragePool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]{a}>(x)",
            opset=opset,
        )
        for opset, n, a in (
            (7, "plain", ""),
            (7, "include_pad", ", count_include_pad=1"),
            (10, "ceil", ", ceil_mode=1"),
            (11, "ceil_include_pad", ", ceil_mode=1, count_include_pad=1"),
        )
    ),
    *(
        Case(
            f"max_pool_{opset}",
            IMAGE,
            f"y = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]{a}>(x)",
            opset=opset,
        )
        for opset, a in ((7, ""), (8, ""), (10, ", ceil_mode=1"), (11, ", dilations=[1,1]"))
    ),
    *(
        Case(
            f"gemm_{opset}",
            "float[3,5] a",
            f"y = Gemm<transB=1{a}>(a, b, c)",
            "float[4,5] b, float[4] c",
            opset=opset,
        )
        for opset, a in ((7, ""), (9, ", alpha=0.5, beta=2.0"))
    ),
    Case("gemm_11_no_bias", "float[3,5] a", "y = Gemm<transB=1>(a, b)", "float[4,5] b", opset=11),
    *(Case(f"flatten_{opset}", IMAGE, "y = Flatten<axis=1>(x)", opset=opset) for opset in (7, 9)),
    Case("reshape_7", IMAGE, "y = Reshape(x, s)", "int64[3] s = {0,3,-1}", opset=7),
    *(
        Case(f"add_{opset}_broadcast", "float[1,3,4,6] a, float[3,1,1] b", "y = Add(a, b)", opset=opset)
        for opset in (7, 13)
    ),
    *(
        Case(f"sum_{opset}", "float[2,3] a, float[2,3] b, float[2,3] c", "y = Sum(a, b, c)", opset=opset)
        for opset in (7, 8)
    ),
    Case("pow_7", "float[2,3] x", "y = Pow(x, e)", "float e = {2.0}", opset=7),
    Case(
        "cast_7", "float[2,3] x", "i = Cast<to=7>(x)\ny = Cast<to=1>(i)", opset=7, ranges={"x": (-9.9, 9.9)}
    ),
    Case("topk_10", "float[2,9] x", "y, i = TopK(x, k)", "int64[1] k = {3}", opset=10, outputs="y, i"),
    Case(
        "topk_11_smallest",
        "float[2,9] x",
        "y, i = TopK<largest=0>(x, k)",
        "int64[1] k = {3}",
        opset=11,
        outputs="y, i",
    ),
    *(
        Case(f"argmax_{opset}", "float[2,9] x", "y = ArgMax<axis=1, keepdims=0>(x)", opset=opset)
        for opset in (7, 11)
    ),
    Case("greater_7", "float[2,9] a, float[9] b", "y = Greater(a, b)", opset=7),
    Case("where_9", "bool[2,3] c, float[2,3] a, float[3] b", "y = Where(c, a, b)", opset=9),
    Case("expand_8", "float[3,1] x", "y = Expand(x, s)", "int64[3] s = {2,3,4}", opset=8),
    Case(
        "constant_7",
        "float[2,3] x",
        "k = Constant<value = float[3] {1.0, 2.0, 3.0}>()\ny = Add(x, k)",
        opset=7,
    ),
    *(Case(f"prelu_{opset}", IMAGE, "y = PRelu(x, s)", "float[3,1,1] s", opset=opset) for opset in (7, 9)),
    Case(
        "conv_7_auto_pad",
        "float[1,3,7,7] x",
        'y = Conv<auto_pad="SAME_UPPER", kernel_shape=[3,3], strides=[2,2]>(x, w, b)',
        "float[4,3,3,3] w, float[4] b",
        opset=7,
    ),
    Case(
        "conv_transpose_7",
        "float[1,3,4,4] x",
        "y = ConvTranspose<kernel_shape=[2,2], strides=[2,2]>(x, w)",
        "float[3,4,2,2] w",
        opset=7,
    ),
    Case("depth_to_space_7", "float[1,8,3,4] x", "y = DepthToSpace<blocksize=2>(x)", opset=7),
    Case(
        "depth_to_space_11_crd", "float[1,8,3,4] x", 'y = DepthToSpace<blocksize=2, mode="CRD">(x)', opset=11
    ),
    Case("lrn_7", "float[1,6,3,3] x", "y = LRN<size=3, alpha=0.5>(x)", opset=7),
    Case(
        "dequantize_10",
        "uint8[2,3] x",
        "y = DequantizeLinear(x, s, z)",
        "float s = {0.1}, uint8 z = {128}",
        opset=10,
        ranges={"x": (0, 256)},
    ),
    Case(
        "quantize_10",
        "float[2,3] x",
        "y = QuantizeLinear(x, s, z)",
        "float s = {0.1}, uint8 z = {128}",
        opset=10,
        steps=1,
    ),
    Case("mean_7", "float[2,3] a, float[2,3] b", "y = Mean(a, b)", opset=7),
]
