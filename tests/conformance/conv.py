"""Conv and ConvTranspose with every attribute and default, and what is fused into them."""

from __future__ import annotations

from tests.conformance.case import Case

# name, input, weight, attributes. The bias is `b`, of the output's channels, where a row says so.
CONVS = [
    ("1x1", "1,4,6,6", "5,4,1,1", ""),
    ("1x1_stride2", "1,4,7,6", "5,4,1,1", "strides=[2,2]"),
    ("1x1_pads", "1,4,5,5", "5,4,1,1", "pads=[1,2,0,1]"),
    ("1x1_image_1x1", "1,8,1,1", "5,8,1,1", ""),
    ("3x3", "1,3,8,9", "4,3,3,3", ""),
    ("3x3_same", "1,3,8,9", "4,3,3,3", "pads=[1,1,1,1]"),
    ("3x3_full_pads", "1,3,6,6", "4,3,3,3", "pads=[2,2,2,2]"),
    ("3x3_pads_beyond_kernel", "1,3,6,6", "4,3,3,3", "pads=[4,4,4,4]"),
    ("3x3_pads_begin_only", "1,3,8,8", "4,3,3,3", "pads=[1,1,0,0]"),
    ("3x3_pads_end_only", "1,3,8,8", "4,3,3,3", "pads=[0,0,1,1]"),
    ("3x3_pads_left_only", "1,3,8,8", "4,3,3,3", "pads=[0,2,0,0]"),
    ("3x3_pads_all_differ", "1,3,8,8", "4,3,3,3", "pads=[0,1,2,3]"),
    ("3x3_stride2_even", "1,3,8,8", "4,3,3,3", "strides=[2,2], pads=[1,1,1,1]"),
    ("3x3_stride2_odd", "1,3,9,9", "4,3,3,3", "strides=[2,2], pads=[1,1,1,1]"),
    ("3x3_stride2_end_pads", "1,3,8,8", "4,3,3,3", "strides=[2,2], pads=[0,0,1,1]"),
    ("3x3_stride2_begin_pads", "1,3,8,8", "4,3,3,3", "strides=[2,2], pads=[1,1,0,0]"),
    ("3x3_stride2_valid", "1,3,8,8", "4,3,3,3", "strides=[2,2]"),
    ("3x3_stride_1_2", "1,3,8,8", "4,3,3,3", "strides=[1,2], pads=[1,1,1,1]"),
    ("3x3_stride_3_2", "1,3,10,11", "4,3,3,3", "strides=[3,2], pads=[1,0,1,0]"),
    ("2x2_stride2_patch", "1,3,8,8", "6,3,2,2", "strides=[2,2]"),
    ("2x2_stride3_gap", "1,3,9,9", "6,3,2,2", "strides=[3,3]"),
    ("4x4_stride4_patch", "1,3,8,8", "6,3,4,4", "strides=[4,4]"),
    ("5x5_same", "1,2,9,7", "3,2,5,5", "pads=[2,2,2,2]"),
    ("7x7_stride2", "1,3,17,16", "4,3,7,7", "strides=[2,2], pads=[3,3,3,3]"),
    ("kernel_1x5", "1,2,6,9", "3,2,1,5", "pads=[0,2,0,2]"),
    ("kernel_5x1", "1,2,9,6", "3,2,5,1", "pads=[2,0,2,0]"),
    ("kernel_2x3", "1,2,7,7", "3,2,2,3", "pads=[0,1,1,1]"),
    ("kernel_is_image", "1,4,5,5", "6,4,5,5", ""),
    ("batch3", "3,3,6,6", "4,3,3,3", "pads=[1,1,1,1]"),
    ("batch_is_channels", "3,3,3,3", "3,3,3,3", "pads=[1,1,1,1]"),
    ("one_channel_in", "1,1,8,8", "4,1,3,3", "pads=[1,1,1,1]"),
    ("one_channel_out", "1,4,8,8", "1,4,3,3", "pads=[1,1,1,1]"),
    ("kernel_shape_given", "1,3,8,8", "4,3,3,3", "kernel_shape=[3,3], group=1, dilations=[1,1]"),
    ("dilation2", "1,3,9,9", "4,3,3,3", "dilations=[2,2]"),
    ("dilation2_same", "1,3,9,9", "4,3,3,3", "dilations=[2,2], pads=[2,2,2,2]"),
    ("dilation_3_1", "1,3,9,9", "4,3,3,3", "dilations=[3,1], pads=[3,1,3,1]"),
    ("dilation2_pads_differ", "1,3,9,9", "4,3,3,3", "dilations=[2,2], pads=[1,2,3,0]"),
    ("dilation2_stride2", "1,3,11,11", "4,3,3,3", "dilations=[2,2], strides=[2,2], pads=[2,2,2,2]"),
    ("depthwise", "1,4,8,8", "4,1,3,3", "group=4, pads=[1,1,1,1]"),
    ("depthwise_valid", "1,4,8,8", "4,1,3,3", "group=4"),
    ("depthwise_stride2_even", "1,4,8,8", "4,1,3,3", "group=4, strides=[2,2], pads=[1,1,1,1]"),
    ("depthwise_stride2_odd", "1,4,9,7", "4,1,3,3", "group=4, strides=[2,2], pads=[1,1,1,1]"),
    ("depthwise_stride_1_2", "1,4,9,8", "4,1,3,3", "group=4, strides=[1,2], pads=[1,1,1,1]"),
    ("depthwise_5x5", "1,4,9,9", "4,1,5,5", "group=4, pads=[2,2,2,2]"),
    ("depthwise_pads_differ", "1,4,8,8", "4,1,3,3", "group=4, pads=[0,1,2,1]"),
    ("depthwise_dilation2", "1,4,9,9", "4,1,3,3", "group=4, dilations=[2,2], pads=[2,2,2,2]"),
    ("depthwise_dilation2_stride2", "1,4,11,11", "4,1,3,3", "group=4, dilations=[2,2], strides=[2,2]"),
    ("depthwise_1x1", "1,4,6,6", "4,1,1,1", "group=4"),
    ("depthwise_multiplier2", "1,4,8,8", "8,1,3,3", "group=4, pads=[1,1,1,1]"),
    ("depthwise_multiplier3_stride2", "1,2,8,8", "6,1,3,3", "group=2, strides=[2,2], pads=[1,1,1,1]"),
    ("depthwise_1x7", "1,4,5,9", "4,1,1,7", "group=4, pads=[0,3,0,3]"),
    ("depthwise_batch2", "2,4,8,8", "4,1,3,3", "group=4, pads=[1,1,1,1]"),
    ("grouped2", "1,4,8,8", "6,2,3,3", "group=2, pads=[1,1,1,1]"),
    ("grouped3_1x1", "1,6,5,5", "9,2,1,1", "group=3"),
    ("grouped2_stride2", "1,4,8,8", "4,2,3,3", "group=2, strides=[2,2], pads=[1,1,1,1]"),
    ("grouped2_dilation2", "1,4,9,9", "4,2,3,3", "group=2, dilations=[2,2], pads=[2,2,2,2]"),
    ("grouped4_pads_differ", "1,8,7,7", "8,2,3,3", "group=4, pads=[0,1,2,1]"),
    ("1d", "1,3,12", "4,3,3", "pads=[1,1]"),
    ("1d_defaults", "1,3,12", "4,3,3", ""),
    ("1d_stride2", "1,3,13", "4,3,5", "strides=[2], pads=[2,2]"),
    ("1d_dilation2", "2,3,12", "4,3,3", "dilations=[2], pads=[4,0]"),
    ("1d_depthwise", "1,4,12", "4,1,3", "group=4, pads=[1,1]"),
    ("1d_grouped", "1,4,12", "6,2,3", "group=2"),
    ("1d_1", "1,3,12", "4,3,1", ""),
    ("1d_same_upper", "1,3,11", "4,3,4", 'auto_pad="SAME_UPPER", strides=[2]'),
    ("3d", "1,2,5,6,7", "3,2,3,3,3", "pads=[1,1,1,1,1,1]"),
    ("3d_defaults", "1,2,5,6,7", "3,2,3,3,3", ""),
    ("3d_stride2", "1,2,6,6,6", "3,2,3,3,3", "strides=[2,2,2], pads=[1,1,1,1,1,1]"),
    ("3d_kernel_differs", "1,2,5,6,7", "3,2,1,3,2", "strides=[1,2,1], pads=[0,1,0,0,1,1]"),
    ("3d_1x1x1", "1,2,3,4,5", "3,2,1,1,1", ""),
    ("3d_grouped", "1,4,4,4,4", "4,2,2,2,2", "group=2"),
]

AUTO_PADS = [
    (f"{pad.lower()}_{name}", shape, kernel, f'auto_pad="{pad}"{rest}')
    for pad in ("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")
    for name, shape, kernel, rest in (
        ("stride1", "1,3,8,7", "4,3,3,3", ""),
        ("even_kernel", "1,3,8,7", "4,3,4,2", ""),
        ("stride2_even", "1,3,8,8", "4,3,3,3", ", strides=[2,2]"),
        ("stride2_odd", "1,3,9,9", "4,3,3,3", ", strides=[2,2]"),
        ("stride3", "1,3,10,11", "4,3,2,5", ", strides=[3,3]"),
        ("depthwise", "1,4,8,8", "4,1,3,3", ", strides=[2,2], group=4"),
    )
]

TRANSPOSED = [
    ("2x2_stride2", "1,3,4,5", "3,4,2,2", "strides=[2,2]"),
    ("defaults", "1,3,5,5", "3,4,3,3", ""),
    ("kernel_1x1", "1,3,5,5", "3,4,1,1", ""),
    ("1x1_stride2", "1,3,4,4", "3,4,1,1", "strides=[2,2]"),
    ("3x3_pads", "1,3,5,5", "3,4,3,3", "pads=[1,1,1,1]"),
    ("3x3_stride2", "1,3,5,4", "3,4,3,3", "strides=[2,2]"),
    ("3x3_stride2_pads", "1,3,5,4", "3,4,3,3", "strides=[2,2], pads=[1,1,1,1]"),
    (
        "3x3_stride2_output_padding",
        "1,3,5,4",
        "3,4,3,3",
        "strides=[2,2], pads=[1,1,1,1], output_padding=[1,1]",
    ),
    ("output_padding_one_axis", "1,3,5,4", "3,4,3,3", "strides=[2,3], output_padding=[0,2]"),
    ("4x4_stride2_pads", "1,3,4,4", "3,2,4,4", "strides=[2,2], pads=[1,1,1,1]"),
    ("4x4_stride4", "1,2,3,3", "2,3,4,4", "strides=[4,4]"),
    ("2x2_stride3_gap", "1,2,3,3", "2,3,2,2", "strides=[3,3]"),
    ("stride_2_1", "1,3,4,5", "3,4,3,2", "strides=[2,1]"),
    ("pads_differ", "1,3,6,6", "3,4,3,3", "strides=[2,2], pads=[0,1,2,0]"),
    ("pads_beyond_kernel", "1,2,7,7", "2,3,3,3", "pads=[3,3,3,3]"),
    ("output_shape", "1,3,5,5", "3,4,3,3", "strides=[2,2], output_shape=[10,10]"),
    ("output_shape_odd", "1,3,5,5", "3,4,3,3", "strides=[3,2], output_shape=[14,10]"),
    (
        "output_shape_same_upper",
        "1,3,5,5",
        "3,4,3,3",
        'strides=[2,2], output_shape=[10,10], auto_pad="SAME_UPPER"',
    ),
    (
        "output_shape_same_lower",
        "1,3,5,5",
        "3,4,3,3",
        'strides=[2,2], output_shape=[10,10], auto_pad="SAME_LOWER"',
    ),
    ("same_upper", "1,3,5,5", "3,4,3,3", 'strides=[2,2], auto_pad="SAME_UPPER"'),
    ("same_lower", "1,3,5,5", "3,4,3,3", 'strides=[2,2], auto_pad="SAME_LOWER"'),
    ("same_upper_4x4", "1,3,5,5", "3,4,4,4", 'strides=[2,2], auto_pad="SAME_UPPER"'),
    ("valid", "1,3,5,5", "3,4,3,3", 'strides=[2,2], auto_pad="VALID"'),
    ("grouped2", "1,4,5,5", "4,3,3,3", "group=2, strides=[2,2], pads=[1,1,1,1]"),
    ("depthwise", "1,4,5,5", "4,1,3,3", "group=4, strides=[2,2]"),
    ("depthwise_bilinear", "1,4,5,5", "4,1,4,4", "group=4, strides=[2,2], pads=[1,1,1,1]"),
    ("dilation2", "1,3,5,5", "3,4,3,3", "dilations=[2,2]"),
    ("dilation2_stride2", "1,3,5,5", "3,4,3,3", "dilations=[2,2], strides=[2,2], pads=[1,1,1,1]"),
    ("batch2", "2,3,4,4", "3,4,2,2", "strides=[2,2]"),
    ("kernel_shape_given", "1,3,4,4", "3,4,2,2", "kernel_shape=[2,2], strides=[2,2]"),
    ("1d", "1,3,8", "3,4,4", "strides=[2], pads=[1,1]"),
    ("1d_output_padding", "1,3,8", "3,4,3", "strides=[2], pads=[1,1], output_padding=[1]"),
    ("3d", "1,2,3,4,3", "2,3,2,2,2", "strides=[2,2,2]"),
]

# What follows a convolution and may be fused into it: name, nodes from c to y, weights.
TAILS = [
    ("relu", "y = Relu(c)", ""),
    ("relu6", "y = Clip(c, low, high)", "float low = {0.0}, float high = {6.0}"),
    ("clip_1_1", "y = Clip(c, low, high)", "float low = {-1.0}, float high = {1.0}"),
    ("clip_0_1", "y = Clip(c, low, high)", "float low = {0.0}, float high = {1.0}"),
    ("clip_odd", "y = Clip(c, low, high)", "float low = {-0.3}, float high = {0.7}"),
    ("leaky_relu", "y = LeakyRelu<alpha=0.1>(c)", ""),
    ("prelu", "y = PRelu(c, slope)", "float[4,1,1] slope"),
    ("sigmoid", "y = Sigmoid(c)", ""),
    ("tanh", "y = Tanh(c)", ""),
    ("silu", "s = Sigmoid(c)\ny = Mul(c, s)", ""),
    ("hardswish", "y = HardSwish(c)", ""),
    (
        "hardswish_spelled",
        "a = Add(c, three)\nk = Clip(a, low, high)\nm = Mul(c, k)\ny = Div(m, high)",
        "float three = {3.0}, float low = {0.0}, float high = {6.0}",
    ),
    (
        "hardsigmoid_spelled",
        "a = Add(c, three)\nk = Clip(a, low, high)\ny = Div(k, high)",
        "float three = {3.0}, float low = {0.0}, float high = {6.0}",
    ),
    (
        "batchnorm",
        "y = BatchNormalization<epsilon=0.001>(c, scale, shift, mean, var)",
        "float[4] scale, float[4] shift, float[4] mean, float[4] var",
    ),
    (
        "batchnorm_relu",
        "n = BatchNormalization(c, scale, shift, mean, var)\ny = Relu(n)",
        "float[4] scale, float[4] shift, float[4] mean, float[4] var",
    ),
    ("add_channel", "y = Add(c, k)", "float[4,1,1] k"),
    ("mul_channel", "y = Mul(c, k)", "float[1,4,1,1] k"),
    ("mul_add_channel", "m = Mul(c, k)\ny = Add(m, d)", "float[1,4,1,1] k, float[4,1,1] d"),
    ("mul_scalar", "y = Mul(c, k)", "float k = {0.5}"),
    ("add_itself", "r = Relu(c)\ny = Add(c, r)", ""),
    ("relu_and_raw_used", "r = Relu(c)\ns = Sigmoid(c)\ny = Sub(r, s)", ""),
    ("relu_twice", "r = Relu(c)\ny = Relu(r)", ""),
]


def _conv(op: str, prefix: str, row: tuple[str, str, str, str], bias: bool) -> Case:
    name, shape, kernel, attributes = row
    weights = f"float[{kernel}] w"
    operands = "x, w"
    if bias:
        sizes = [int(n) for n in kernel.split(",")]
        group = next((int(a[6:]) for a in attributes.split(", ") if a.startswith("group=")), 1)
        weights += f", float[{sizes[0] if op == 'Conv' else sizes[1] * group}] b"
        operands = "x, w, b"
    body = f"y = {op}<{attributes}>({operands})" if attributes else f"y = {op}({operands})"
    return Case(f"{prefix}_{name}{'_bias' if bias else ''}", f"float[{shape}] x", body, weights)


# Bias on every second row: the two forms get the same variety at half the cost.
CASES = [
    *(_conv("Conv", "conv", row, bias=i % 2 == 1) for i, row in enumerate(CONVS)),
    *(_conv("Conv", "conv", row, bias=i % 2 == 0) for i, row in enumerate(AUTO_PADS)),
    *(_conv("ConvTranspose", "conv_transpose", row, bias=i % 2 == 1) for i, row in enumerate(TRANSPOSED)),
    *(
        Case(
            f"conv_then_{name}",
            "float[1,3,8,8] x",
            f"c = Conv<pads=[1,1,1,1]>(x, w, b)\n{body}",
            f"float[4,3,3,3] w, float[4] b{', ' if weights else ''}{weights}",
            ranges={"var": (0.5, 2.0)},
        )
        for name, body, weights in TAILS
    ),
    *(
        Case(
            f"depthwise_then_{name}",
            "float[1,4,8,8] x",
            f"c = Conv<pads=[1,1,1,1], group=4, strides=[2,2]>(x, w)\n{body}",
            f"float[4,1,3,3] w{', ' if weights else ''}{weights}",
            ranges={"var": (0.5, 2.0)},
        )
        for name, body, weights in TAILS
        if name in ("relu6", "silu", "hardswish", "batchnorm", "prelu")
    ),
    Case(
        "conv_grouped_then_batchnorm",
        "float[1,4,6,6] x",
        "c = Conv<group=2>(x, w)\ny = BatchNormalization(c, scale, shift, mean, var)",
        "float[6,2,3,3] w, float[6] scale, float[6] shift, float[6] mean, float[6] var",
        ranges={"var": (0.5, 2.0)},
    ),
    Case(
        "batchnorm_then_conv",
        "float[1,3,6,6] x",
        "n = BatchNormalization(x, scale, shift, mean, var)\ny = Conv<pads=[1,1,1,1]>(n, w)",
        "float[4,3,3,3] w, float[3] scale, float[3] shift, float[3] mean, float[3] var",
        ranges={"var": (0.5, 2.0)},
    ),
    Case(
        "pad_then_conv",
        "float[1,3,6,6] x",
        "p = Pad(x, pads)\ny = Conv(p, w, b)",
        "int64[8] pads = {0,0,1,2,0,0,2,1}, float[4,3,3,3] w, float[4] b",
    ),
    Case(
        "conv_weight_is_input",
        "float[1,3,6,6] x, float[4,3,3,3] w",
        "y = Conv<pads=[1,1,1,1]>(x, w)",
    ),
    Case(
        "conv_bias_is_input",
        "float[1,3,6,6] x, float[4] b",
        "y = Conv<pads=[1,1,1,1]>(x, w, b)",
        "float[4,3,3,3] w",
    ),
    Case(
        "conv_weight_shared",
        "float[1,4,6,6] x",
        "a = Conv<pads=[1,1,1,1]>(x, w, b)\nr = Relu(a)\ny = Conv<pads=[1,1,1,1]>(r, w, b)",
        "float[4,4,3,3] w, float[4] b",
    ),
    Case(
        "conv_output_used_twice",
        "float[1,3,6,6] x",
        "c = Conv<pads=[1,1,1,1]>(x, w)\ny = Relu(c)\nz = Identity(c)",
        "float[4,3,3,3] w",
        outputs="y, z",
    ),
]
