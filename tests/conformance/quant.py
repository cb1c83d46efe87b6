"""QuantizeLinear and DequantizeLinear: alone, around ops, per tensor and per axis.

An int8 engine and the reference (which runs the float op between the two) may round a value on the border of
two steps differently: those cases say in ``steps`` how far an integer may be off, or in ``snr_db`` what one
step means for the float answer. A wrong scale, zero point or axis is far outside of both.
"""

from __future__ import annotations

from tests.conformance.case import Case

SCALE = "float s = {0.05}"

# Q -> DQ in front of and behind an op: name, inputs, nodes from d to r, weights
INSIDE = [
    ("relu", "1,3,4,4", "r = Relu(d)", ""),
    ("sigmoid", "1,3,4,4", "r = Sigmoid(d)", ""),
    ("add_itself", "1,3,4,4", "r = Add(d, d)", ""),
    ("max_pool", "1,3,4,4", "r = MaxPool<kernel_shape=[2,2], strides=[2,2]>(d)", ""),
    ("average_pool", "1,3,4,4", "r = AveragePool<kernel_shape=[2,2], strides=[2,2]>(d)", ""),
    ("global_average_pool", "1,3,4,4", "r = GlobalAveragePool(d)", ""),
    ("reshape", "1,3,4,4", "r = Reshape(d, k)", "int64[2] k = {1,-1}"),
    ("transpose", "1,3,4,5", "r = Transpose<perm=[0,2,3,1]>(d)", ""),
    ("concat", "1,3,4,4", "r = Concat<axis=1>(d, d)", ""),
    ("pad", "1,3,4,4", "r = Pad(d, k)", "int64[8] k = {0,0,1,1,0,0,1,1}"),
    ("slice", "1,4,4,4", "r = Slice(d, b, e, a)", "int64[1] b = {1}, int64[1] e = {3}, int64[1] a = {1}"),
    (
        "resize",
        "1,3,4,4",
        'r = Resize<mode="nearest", '
        'coordinate_transformation_mode="asymmetric", nearest_mode="floor">(d, , k)',
        "float[4] k = {1.0, 1.0, 2.0, 2.0}",
    ),
    ("clip", "1,3,4,4", "r = Clip(d, low, high)", "float low = {0.0}, float high = {1.0}"),
    ("mul_itself", "1,3,4,4", "r = Mul(d, d)", ""),
    ("softmax", "2,6", "r = Softmax<axis=1>(d)", ""),
]

# name, attributes, input, weight (int8, scale per output channel or one), group
CONVS = [
    ("3x3", "pads=[1,1,1,1]", "1,3,6,6", "4,3,3,3"),
    ("3x3_stride2", "pads=[1,1,1,1], strides=[2,2]", "1,3,6,6", "4,3,3,3"),
    ("1x1", "", "1,4,5,5", "6,4,1,1"),
    ("depthwise", "pads=[1,1,1,1], group=4", "1,4,6,6", "4,1,3,3"),
]


def _qdq_conv(
    name: str, attributes: str, shape: str, kernel: str, per_axis: bool, zero: int, relu: bool
) -> Case:
    channels = int(kernel.split(",")[0])
    scales = ", ".join(f"{0.01 + 0.005 * i:.3f}" for i in range(channels)) if per_axis else "0.02"
    spread = f"float[{channels}] ws = {{{scales}}}, int8[{channels}] wz = {{{', '.join('0' * channels)}}}"
    if not per_axis:
        spread = "float ws = {0.02}, int8 wz = {0}"
    bias = ", ".join(f"{2e-2 * i - 3e-2:.3f}" for i in range(channels))
    body = (
        "q = QuantizeLinear(x, s, z)\nd = DequantizeLinear(q, s, z)\n"
        "w = DequantizeLinear<axis=0>(wq, ws, wz)\n"
        f"c = Conv{f'<{attributes}>' if attributes else ''}(d, w, b)\n"
        + ("t = Relu(c)\n" if relu else "t = Identity(c)\n")
        + "o = QuantizeLinear(t, os, oz)\ny = DequantizeLinear(o, os, oz)"
    )
    weights = (
        f"float s = {{0.03}}, int8 z = {{{zero}}}, int8[{kernel}] wq, {spread}, "
        f"float[{channels}] b = {{{bias}}}, "
        f"float os = {{0.04}}, int8 oz = {{{-128 if relu else 5}}}"
    )
    label = f"qdq_conv_{name}_{'per_axis' if per_axis else 'per_tensor'}{'_relu' if relu else ''}"
    return Case(label, f"float[{shape}] x", body, weights, ranges={"wq": (-60, 61)}, snr_db=28.0)


# Between pairs of different scales: inputs of d (and e), nodes from them to r, weights
PAIRED = {
    "add": ("1,3,4,4", "1,3,4,4", "r = Add(d, e)", ""),
    "mul_channels": ("1,3,4,4", "1,3,1,1", "r = Mul(d, e)", ""),
    "sub_number": ("1,3,4,4", "", "r = Sub(d, k)", ", float k = {0.7}"),
    "concat": ("1,3,4,4", "1,2,4,4", "r = Concat<axis=1>(d, e)", ""),
    "max": ("1,3,4,4", "1,3,4,4", "r = Max(d, e)", ""),
    "matmul_bias": (
        "2,3,8",
        "",
        "w = DequantizeLinear<axis=1>(wq, ws)\nm = MatMul(d, w)\nr = Add(m, b)",
        ", int8[8,2] wq, float[2] ws = {0.01, 0.02}, float[2] b = {0.5, -0.25}",
    ),
    "matmul": ("2,3,8", "2,8,4", "r = MatMul(d, e)", ""),
    "conv_1d": (
        "1,4,9",
        "",
        "w = DequantizeLinear<axis=0>(wq, ws)\nr = Conv<pads=[1,1]>(d, w)",
        ", int8[2,4,3] wq, float[2] ws = {0.01, 0.02}",
    ),
    "conv_uint8_weights": (
        "1,4,5,5",
        "",
        "w = DequantizeLinear(wq, ws, wz)\nr = Conv(d, w)",
        ", uint8[2,4,1,1] wq, float ws = {0.01}, uint8 wz = {128}",
    ),
    "conv_int32_bias": (
        "1,4,5,5",
        "",
        "w = DequantizeLinear(wq, ws)\nb = DequantizeLinear(bq, bs)\nr = Conv(d, w, b)",
        ", int8[2,4,1,1] wq, float ws = {0.01}, int32[2] bq = {900, -700}, float bs = {0.0003}",
    ),
    "conv_asymmetric_weights": (
        "1,4,5,5",
        "",
        "w = DequantizeLinear(wq, ws, wz)\nr = Conv(d, w)",
        ", int8[2,4,1,1] wq, float ws = {0.01}, int8 wz = {7}",
    ),
    "conv_of_an_image": (
        "1,3,8,8",
        "",
        "w = DequantizeLinear(wq, ws)\nr = Conv<strides=[2,2], pads=[2,2,2,2]>(d, w)",
        ", int8[4,3,6,6] wq, float ws = {0.004}",
    ),
    "conv_transpose": (
        "1,4,5,5",
        "",
        "w = DequantizeLinear(wq, ws)\nr = ConvTranspose<strides=[2,2]>(d, w)",
        ", int8[4,2,2,2] wq, float ws = {0.01}",
    ),
    "conv_clip": (
        "1,4,5,5",
        "",
        "w = DequantizeLinear(wq, ws)\nc = Conv(d, w)\nr = Clip(c, low, high)",
        ", int8[2,4,1,1] wq, float ws = {0.01}, float low = {0.0}, float high = {0.6}",
    ),
    "average_pool_padded": (
        "1,3,6,6",
        "",
        "r = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(d)",
        "",
    ),
    "hard_swish": ("1,3,4,4", "", "r = HardSwish(d)", ""),
    "leaky_relu": ("1,3,4,4", "", "r = LeakyRelu<alpha=0.2>(d)", ""),
    "tanh": ("1,3,4,4", "", "r = Tanh(d)", ""),
    "exp": ("1,3,4,4", "", "r = Exp(d)", ""),
    "reduce_mean": ("1,3,4,4", "", "r = ReduceMean<keepdims=0>(d, a)", ", int64[2] a = {2, 3}"),
    "resize_linear": (
        "1,3,4,4",
        "",
        'r = Resize<mode="linear">(d, , k)',
        ", float[4] k = {1.0, 1.0, 2.0, 2.0}",
    ),
}


def _between_pairs(name: str, first: str, second: str, body: str, weights: str) -> Case:
    inputs = f"int8[{first}] x" + (f", int8[{second}] v" if second else "")
    nodes = "d = DequantizeLinear(x, s, z)\n"
    nodes += "e = DequantizeLinear(v, vs, vz)\n" if second else ""
    nodes += f"{body}\ny = QuantizeLinear(r, os, oz)"
    scales = "float s = {0.0153}, int8 z = {-4}, float os = {0.0212}, int8 oz = {3}"
    scales += ", float vs = {0.0117}, int8 vz = {9}" if second else ""
    unsigned = "uint8[2,4" in weights
    ranges = {"x": (-128, 128), "v": (-128, 128), "wq": (70, 190) if unsigned else (-60, 61)}
    return Case(f"paired_{name}", inputs, nodes, scales + weights, ranges=ranges, steps=1)


CASES = [
    *(
        Case(
            f"quantize_{t}_{name}",
            "float[2,3,4] x",
            "y = QuantizeLinear(x, s, z)",
            f"float s = {{0.031}}, {t} z = {{{zero}}}",
            ranges={"x": (-6, 6)},
            steps=1,
        )
        for t, zero, name in (
            ("int8", 0, "zero"),
            ("int8", -10, "offset"),
            ("uint8", 128, "middle"),
            ("uint8", 0, "zero"),
        )
    ),
    Case(
        "quantize_default_is_uint8",
        "float[2,3,4] x",
        "y = QuantizeLinear(x, s)",
        "float s = {0.031}",
        ranges={"x": (-1, 9)},
        steps=1,
    ),
    Case(
        "quantize_per_axis",
        "float[2,3,4] x",
        "y = QuantizeLinear<axis=1>(x, s, z)",
        "float[3] s = {0.02, 0.05, 0.1}, int8[3] z = {0, 3, -7}",
        steps=1,
    ),
    *(
        Case(
            f"dequantize_{t}_{name}",
            f"{t}[2,3,4] x",
            "y = DequantizeLinear(x, s, z)",
            f"float s = {{0.031}}, {t} z = {{{zero}}}",
            ranges={"x": limits},
        )
        for t, zero, name, limits in (
            ("int8", 0, "zero", (-128, 128)),
            ("int8", 5, "offset", (-128, 128)),
            ("uint8", 128, "middle", (0, 256)),
            ("int32", 0, "zero", (-1000, 1000)),
        )
    ),
    Case(
        "dequantize_no_zero_point",
        "int8[2,3,4] x",
        "y = DequantizeLinear(x, s)",
        SCALE,
        ranges={"x": (-128, 128)},
    ),
    Case(
        "dequantize_per_axis",
        "int8[2,3,4] x",
        "y = DequantizeLinear<axis=1>(x, s, z)",
        "float[3] s = {0.02, 0.05, 0.1}, int8[3] z = {0, 3, -7}",
        ranges={"x": (-128, 128)},
    ),
    Case(
        "dequantize_per_axis_default",
        "uint8[2,3,4] x",
        "y = DequantizeLinear(x, s, z)",
        "float[3] s = {0.02, 0.05, 0.1}, uint8[3] z = {0, 3, 128}",
        ranges={"x": (0, 256)},
    ),
    Case(
        "dequantize_weight_only_matmul",
        "float[3,8] x",
        "w = DequantizeLinear<axis=1>(wq, s)\ny = MatMul(x, w)",
        "int8[8,4] wq, float[4] s = {0.02, 0.05, 0.1, 0.03}",
        ranges={"wq": (-128, 128)},
    ),
    Case(
        "dequantize_weight_only_conv",
        "float[1,3,5,5] x",
        "w = DequantizeLinear<axis=0>(wq, s)\ny = Conv<pads=[1,1,1,1]>(x, w)",
        "int8[4,3,3,3] wq, float[4] s = {0.02, 0.05, 0.1, 0.03}",
        ranges={"wq": (-128, 128)},
    ),
    # One step of 0.05 in values of about 1.
    *(
        Case(
            f"qdq_{t}_alone",
            "float[1,3,4,4] x",
            "q = QuantizeLinear(x, s, z)\ny = DequantizeLinear(q, s, z)",
            f"{SCALE}, {t} z = {{{zero}}}",
            snr_db=28.0,
        )
        for t, zero in (("int8", 4), ("uint8", 120))
    ),
    *(
        Case(
            f"qdq_{t}_{name}",
            f"float[{shape}] x",
            f"q = QuantizeLinear(x, s, z)\nd = DequantizeLinear(q, s, z)\n{body}\n"
            "o = QuantizeLinear(r, s, z)\ny = DequantizeLinear(o, s, z)",
            f"{SCALE}, {t} z = {{{zero}}}{', ' if weights else ''}{weights}",
            snr_db=22.0,
        )
        for name, shape, body, weights in INSIDE
        for t, zero in (("int8", -3), ("uint8", 110))
    ),
    *(
        _qdq_conv(n, a, x, w, per_axis=p, zero=-4, relu=r)
        for n, a, x, w in CONVS
        for p in (False, True)
        for r in (False, True)
    ),
    Case(
        "qdq_gemm",
        "float[3,8] x",
        "q = QuantizeLinear(x, s, z)\nd = DequantizeLinear(q, s, z)\n"
        "w = DequantizeLinear<axis=0>(wq, ws)\ng = Gemm<transB=1>(d, w, b)\n"
        "o = QuantizeLinear(g, os, z)\ny = DequantizeLinear(o, os, z)",
        "float s = {0.03}, int8 z = {-4}, int8[4,8] wq, "
        "float[4] ws = {0.01, 0.015, 0.02, 0.005}, float[4] b, float os = {0.05}",
        ranges={"wq": (-60, 61)},
        snr_db=28.0,
    ),
    Case(
        "qdq_two_convs",
        "float[1,3,6,6] x",
        "q = QuantizeLinear(x, s, z)\nd = DequantizeLinear(q, s, z)\n"
        "w = DequantizeLinear<axis=0>(wq, ws)\nc = Conv<pads=[1,1,1,1]>(d, w)\nr = Relu(c)\n"
        "q1 = QuantizeLinear(r, s1, z1)\nd1 = DequantizeLinear(q1, s1, z1)\n"
        "v = DequantizeLinear<axis=0>(vq, vs)\nc1 = Conv(d1, v)\n"
        "o = QuantizeLinear(c1, os, oz)\ny = DequantizeLinear(o, os, oz)",
        "float s = {0.03}, int8 z = {-4}, int8[4,3,3,3] wq, "
        "float[4] ws = {0.01, 0.01, 0.02, 0.01}, float s1 = {0.03}, int8 z1 = {-128}, "
        "int8[2,4,1,1] vq, float[2] vs = {0.01, 0.02}, float os = {0.05}, int8 oz = {3}",
        ranges={"wq": (-60, 61), "vq": (-60, 61)},
        snr_db=25.0,
    ),
    *(_between_pairs(name, *parts) for name, parts in PAIRED.items()),
    Case(
        "quantized_input",
        "uint8[1,3,4,4] x",
        "d = DequantizeLinear(x, s, z)\ny = Conv(d, w)",
        f"{SCALE}, uint8 z = {{128}}, float[2,3,1,1] w",
        ranges={"x": (0, 256)},
    ),
]
