"""Files that TensorRT takes or refuses, as ONNX text: each rule of the checker has some of both kinds.

    ACCEPTED   the checker has no word against them, and NVIDIA's compiler of 2026 builds them
    REFUSED    rule -> files that break it; NVIDIA's compiler refuses them too
    NEWER      rule -> files that the list of 10.1 excludes and the newer compiler takes
    SILENT     rule -> files that NVIDIA's compiler takes, and gets wrong or slow

They are written as the target emits them: opset 19, nodes named.
"""

from __future__ import annotations

from tests.conformance.case import Case

OPSET = 19
PAIR = "q = QuantizeLinear(x, s, z)\nd = DequantizeLinear(q, s, z)\n"
SCALES = "float s = {0.05}, int8 z = {0}"
IMAGE = "float[1,3,8,8] x"
WEIGHTS = "int8[4,3,3,3] w, float[4] t = {0.01,0.02,0.03,0.04}, int8[4] u = {0,0,0,0}, float[4] b"
STATISTICS = "float[3] s, float[3] b, float[3] m, float[3] v"
CONV = "e = DequantizeLinear<axis=0>(w, t, u)\ny = Conv<pads=[1,1,1,1]>(d, e, b)"


def _case(
    name: str, inputs: str, body: str, weights: str = "", outputs: str = "y", opset: int = OPSET
) -> Case:
    return Case(name, inputs, body, weights, outputs=outputs, opset=opset)


ACCEPTED = [
    _case("float8", IMAGE, PAIR + "y = Relu(d)", "float s = {0.05}, float8e4m3fn z = {0}"),
    _case("int8_conv", IMAGE, PAIR + CONV, f"{SCALES}, {WEIGHTS}"),
    _case(
        "int8_conv_one_weight_scale",
        IMAGE,
        PAIR + "e = DequantizeLinear(w, t, u)\ny = Conv<pads=[1,1,1,1]>(d, e, b)",
        f"{SCALES}, int8[4,3,3,3] w, float t = {{0.01}}, int8 u = {{0}}, float[4] b",
    ),
    _case(
        "int8_conv_transpose",
        IMAGE,
        PAIR + "e = DequantizeLinear<axis=1>(w, t, u)\ny = ConvTranspose<strides=[2,2]>(d, e, b)",
        f"{SCALES}, {WEIGHTS.replace('4,3,3,3', '3,4,2,2')}",
    ),
    _case(
        "int8_matmul",
        "float[2,8] x",
        PAIR + "e = DequantizeLinear<axis=1>(w, t, u)\ny = MatMul(d, e)",
        f"{SCALES}, int8[8,4] w, float[4] t = {{0.01,0.02,0.03,0.04}}, int8[4] u = {{0,0,0,0}}",
    ),
    _case(
        "int8_gemm",
        "float[2,8] x",
        PAIR + "e = DequantizeLinear<axis=0>(w, t, u)\ny = Gemm<transB=1>(d, e, b)",
        f"{SCALES}, int8[4,8] w, float[4] t = {{0.01,0.02,0.03,0.04}}, int8[4] u = {{0,0,0,0}}, float[4] b",
    ),
    _case("max_pool", IMAGE, "y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x)"),
    _case("cum_sum", "float[2,3] x", "y = CumSum(x, a)", "int64 a = {1}"),
    _case("top_k", "float[1,4000] x", "v, i = TopK(x, k)\ny = Identity(v)", "int64[1] k = {3839}"),
    _case(
        "resize",
        "float[1,2,4,4] x",
        'y = Resize<mode="linear", coordinate_transformation_mode="half_pixel">(x, , s)',
        "float[4] s = {1,1,2,2}",
    ),
    _case("grid_sample", "float[1,2,4,4] x, float[1,3,3,2] g", "y = GridSample(x, g)"),
    _case("layer_norm", "float[2,8] x", "y = LayerNormalization(x, g, b)", "float[8] g, float[8] b"),
    _case(
        "lstm", "float[4,1,2] x", "y, h = LSTM<hidden_size=3>(x, w, r)", "float[1,12,2] w, float[1,12,3] r"
    ),
    _case("scatter_nd", "float[4,4] x, float[2,4] p", "y = ScatterND(x, i, p)", "int64[2,1] i = {0,2}"),
    _case("gelu", "float[2,8] x", "y = Gelu(x)", opset=20),
    _case("pool_1d", "float[1,3,8] x", "y = MaxPool<kernel_shape=[2]>(x)"),
    _case("average_pool", IMAGE, "y = AveragePool<kernel_shape=[2,2]>(x)"),
    _case("reduce", "float[2,3] x", "y = ReduceSum(x, a)", "int64[1] a = {1}"),
    _case("squeeze", "float[1,4,1] x", "y = Squeeze(x, a)", "int64[1] a = {2}"),
    _case(
        "slice",
        "float[4,4] x",
        "y = Slice(x, b, e, a)",
        "int64[1] b = {0}, int64[1] e = {2}, int64[1] a = {1}",
    ),
    _case("reshape", "float[4] x", "y = Reshape(x, s)", "int64[2] s = {2,2}"),
    _case("pad", "float[1,1,4,4] x", "y = Pad(x, p)", "int64[8] p = {0,0,1,1,0,0,1,1}"),
    _case("uint8_in", "uint8[2,3] x", "y = Cast<to=1>(x)"),
    _case(
        "scatter_elements",
        "float[4,4] x, float[2,4] p",
        "y = ScatterElements(x, i, p)",
        "int64[2,4] i = {0,1,2,3,0,1,2,3}",
    ),
    _case(
        "one_hot",
        "int64[3] x",
        "y = OneHot(x, d, v)",
        "int64 d = {4}, float[2] v = {0,1}",
        outputs="float[3,4] y",
    ),
    _case("softmax", "float[1,8] x", "y = Softmax(x)"),
    _case("vector_times_matrix", "float[4] x, float[1,4,3] w", "y = MatMul(x, w)"),
    _case("batches_times_vector", "float[2,3,4] x, float[4] w", "y = MatMul(x, w)"),
    _case("dilated", IMAGE, "y = ConvTranspose<dilations=[2,2]>(x, w)", "float[3,4,2,2] w"),
    _case("lp_pool", IMAGE, "y = LpPool<kernel_shape=[2,2], p=1>(x)"),
    _case("batch_norm", IMAGE, "y = BatchNormalization(x, s, b, m, v)", STATISTICS),
    _case("int64_relu", "int64[2,3] x", "y = Relu(x)", outputs="int64[2,3] y"),
    _case(
        "residual_of_a_centred_value",
        IMAGE,
        PAIR + "e = DequantizeLinear<axis=0>(w, t, u)\nc = Conv<pads=[1,1,1,1]>(d, e, b)\n"
        "k = Add(d, o)\ny = Add(c, k)",
        f"{SCALES}, int8[3,3,3,3] w, float[3] t = {{0.01,0.02,0.03}}, int8[3] u = {{0,0,0}}, float[3] b, "
        "float o = {1.5}",
    ),
    _case(
        "int8_matmul_of_activations",
        "float[1,2,4,4] x, float[1,2,4,4] v",
        PAIR + "p = QuantizeLinear(v, s, z)\nc = DequantizeLinear(p, s, z)\ny = MatMul(d, c)",
        SCALES,
    ),
    _case(
        "one_of_two_activations",
        "float[1,2,4,4] x, float[1,2,4,4] v",
        PAIR + "a = Softmax(v)\ny = MatMul(a, d)",
        SCALES,
    ),
    _case(
        "two_directions",
        "float[4,1,2] x",
        'y, h = LSTM<hidden_size=3, direction="bidirectional">(x, w, r)',
        "float[2,12,2] w, float[2,12,3] r",
    ),
    _case("int_index", "float[4,3] x", "y = Gather(x, i)", "int64[2] i = {0,2}"),
]

REFUSED: dict[str, list[Case]] = {
    "no form": [
        _case("bit_shift", "uint8[4] x, uint8[4] b", 'y = BitShift<direction="LEFT">(x, b)'),
        _case("det", "float[2,3,3] x", "y = Det(x)"),
        _case(
            "qlinear_conv",
            "int8[1,3,8,8] x",
            "y = QLinearConv(x, s, z, w, s, z, s, z)",
            f"{SCALES}, int8[4,3,3,3] w",
        ),
        _case(
            "qlinear_matmul",
            "int8[2,8] x",
            "y = QLinearMatMul(x, s, z, w, s, z, s, z)",
            f"{SCALES}, int8[8,4] w",
        ),
        _case("conv_integer", "int8[1,3,8,8] x", "y = ConvInteger(x, w)", "int8[4,3,3,3] w"),
        _case("matmul_integer", "int8[2,8] x", "y = MatMulInteger(x, w)", "int8[8,4] w"),
        _case("dynamic_quantize", "float[2,8] x", "y, s, z = DynamicQuantizeLinear(x)"),
    ],
    "type that does not exist": [
        _case("strings", "string[2] x", "y = Identity(x)", outputs="string[2] y"),
        _case("uint16", "float[2,3] x", "y = Cast<to=4>(x)"),
    ],
    "stored type": [
        _case("float8_e5m2", IMAGE, PAIR + "y = Relu(d)", "float s = {0.05}, float8e5m2 z = {0}"),
        _case("int16", IMAGE, PAIR + CONV, f"float s = {{0.05}}, int16 z = {{0}}, {WEIGHTS}", opset=21),
        _case(
            "int32_bias",
            IMAGE,
            PAIR + "e = DequantizeLinear<axis=0>(w, t, u)\nc = DequantizeLinear<axis=0>(b, t)\n"
            "y = Conv<pads=[1,1,1,1]>(d, e, c)",
            f"{SCALES}, {WEIGHTS.replace('float[4] b', 'int32[4] b')}",
        ),
    ],
    "zero point": [
        _case("zero_point", IMAGE, PAIR + CONV, f"float s = {{0.05}}, int8 z = {{3}}, {WEIGHTS}"),
        _case("weight_zero", IMAGE, PAIR + CONV, f"{SCALES}, {WEIGHTS.replace('{0,0,0,0}', '{0,1,0,0}')}"),
    ],
    "scale": [
        _case("scale_fed", IMAGE + ", float s", PAIR + CONV, f"int8 z = {{0}}, {WEIGHTS}"),
        _case("scale_zero", IMAGE, PAIR + CONV, f"float s = {{0}}, int8 z = {{0}}, {WEIGHTS}"),
        _case("scale_negative", IMAGE, PAIR + CONV, f"float s = {{-0.5}}, int8 z = {{0}}, {WEIGHTS}"),
    ],
    "type": [
        _case("int_matmul", "int32[2,3] x, int32[3,2] w", "y = MatMul(x, w)"),
        _case("uint8_add", "uint8[2,3] x", "y = Add(x, x)"),
    ],
    "uint8 inside": [
        _case("uint8_concat", "uint8[2,3] x", "y = Concat<axis=0>(x, x)"),
        _case("uint8_where", "uint8[2,3] x, uint8[2,3] b, bool[2,3] c", "y = Where(c, x, b)"),
    ],
    "dynamic": [_case("dynamic", "float[N,3] x", "y = Relu(x)")],
    "pool rank": [
        _case("max_4d", "float[1,2,4,4,4,4] x", "y = MaxPool<kernel_shape=[2,2,2,2]>(x)"),
        _case("average_4d", "float[1,2,4,4,4,4] x", "y = AveragePool<kernel_shape=[2,2,2,2]>(x)"),
    ],
    "one dimension": [
        _case("softmax_of_a_vector", "float[8] x", "y = Softmax(x)"),
        _case("log_softmax_of_a_vector", "float[8] x", "y = LogSoftmax(x)"),
        _case("hardmax_of_a_vector", "float[8] x", "y = Hardmax(x)"),
        _case("arg_max_of_a_vector", "float[8] x", "y = ArgMax(x)", outputs="int64[1] y"),
    ],
    "vector times batches": [
        _case("vector_times_batches", "float[4] x, float[2,4,3] w", "y = MatMul(x, w)"),
    ],
    "strides and dilations": [
        _case(
            "strided_and_dilated",
            IMAGE,
            "y = ConvTranspose<strides=[2,1], dilations=[1,2]>(x, w)",
            "float[3,4,2,2] w",
        ),
    ],
    "pool norm": [_case("lp_pool_3", IMAGE, "y = LpPool<kernel_shape=[2,2], p=3>(x)")],
    "training": [
        _case(
            "batch_norm_training",
            IMAGE,
            "y, n, w = BatchNormalization<training_mode=1>(x, s, b, m, v)",
            STATISTICS,
        ),
    ],
    "int32 activation": [
        _case("int32_relu", "int32[2,3] x", "y = Relu(x)", outputs="int32[2,3] y"),
    ],
    "pool dilations": [
        _case("max_dilated", IMAGE, "y = MaxPool<kernel_shape=[2,2], dilations=[2,2]>(x)"),
        _case("average_dilated", IMAGE, "y = AveragePool<kernel_shape=[2,2], dilations=[2,2]>(x)"),
    ],
    "pool indices": [_case("indices", IMAGE, "v, y = MaxPool<kernel_shape=[2,2]>(x)")],
    "constant axis": [_case("axis", "float[2,3] x, int64 a", "y = CumSum(x, a)")],
    "constant axes": [
        _case("axes", "float[2,3] x, int64[1] a", "y = ReduceSum(x, a)", outputs="float[1,3] y"),
        _case("squeeze_axes", "float[1,4,1] x, int64[1] a", "y = Squeeze(x, a)", outputs="float[4,1] y"),
    ],
    "constant slice": [
        _case(
            "slice_axes",
            "float[4,4] x, int64[1] a",
            "y = Slice(x, b, e, a)",
            "int64[1] b = {0}, int64[1] e = {2}",
            outputs="float[2,4] y",
        ),
        _case(
            "slice_starts",
            "float[4,4] x, int64[1] b",
            "y = Slice(x, b, e)",
            "int64[1] e = {2}",
            outputs="float[2,4] y",
        ),
    ],
    "constant sizes": [
        _case("reshape", "float[4] x, int64[2] s", "y = Reshape(x, s)", outputs="float[2,2] y"),
        _case("expand", "float[1,4] x, int64[2] s", "y = Expand(x, s)", outputs="float[2,4] y"),
    ],
    "second output": [
        _case(
            "layer_norm_mean",
            "float[2,8] x",
            "y, m = LayerNormalization(x, g, b)",
            "float[8] g, float[8] b",
            outputs="y, m",
        ),
    ],
    "constant pads": [
        _case("fed_pads", "float[1,1,4,4] x, int64[8] p", "y = Pad(x, p)", outputs="float[1,1,6,6] y"),
    ],
    "constant depth": [
        _case(
            "fed_depth",
            "int64[3] x, int64 d",
            "y = OneHot(x, d, v)",
            "float[2] v = {0,1}",
            outputs="float[3,4] y",
        ),
    ],
    "directions": [
        _case(
            "lstm_directions",
            "float[4,1,2] x",
            'y, h = LSTM<hidden_size=3, direction="bidirectional", '
            'activations=["Sigmoid","Tanh","Tanh","Sigmoid","Relu","Tanh"]>(x, w, r)',
            "float[2,12,2] w, float[2,12,3] r",
        ),
        _case(
            "gru_directions",
            "float[4,1,2] x",
            'y, h = GRU<hidden_size=3, direction="bidirectional", '
            'activations=["Sigmoid","Tanh","Sigmoid","Relu"]>(x, w, r)',
            "float[2,9,2] w, float[2,9,3] r",
        ),
    ],
    "coupled gates": [
        _case(
            "input_forget",
            "float[4,1,2] x",
            "y, h = LSTM<hidden_size=3, input_forget=1>(x, w, r)",
            "float[1,12,2] w, float[1,12,3] r",
        ),
    ],
    "resize": [
        _case(
            "antialias",
            "float[1,2,4,4] x",
            'y = Resize<mode="linear", antialias=1>(x, , s)',
            "float[4] s = {1,1,0.5,0.5}",
        ),
        _case(
            "crop",
            "float[1,2,4,4] x",
            'y = Resize<mode="linear", coordinate_transformation_mode="tf_crop_and_resize">(x, r, s)',
            "float[4] s = {1,1,2,2}, float[8] r = {0,0,0,0,1,1,1,1}",
        ),
    ],
    "scatter": [
        _case(
            "scatter_nd_adds",
            "float[4,4] x, float[2,4] p",
            'y = ScatterND<reduction="add">(x, i, p)',
            "int64[2,1] i = {0,2}",
        ),
        _case(
            "scatter_elements_adds",
            "float[4,4] x, float[2,4] p",
            'y = ScatterElements<reduction="add">(x, i, p)',
            "int64[2,4] i = {0,1,2,3,0,1,2,3}",
        ),
    ],
    "top k": [
        _case("large_k", "float[1,5000] x", "v, i = TopK(x, k)\ny = Identity(v)", "int64[1] k = {4000}"),
        _case("fed_k", "float[50] x, int64[1] k", "y, i = TopK(x, k)", outputs="float[N] y"),
    ],
}

NEWER: dict[str, list[Case]] = {
    "stored type": [
        _case(
            "int4_blocks",
            "float[256,64] x",
            "e = DequantizeLinear<axis=0, block_size=128>(w, t)\ny = Mul(x, e)",
            "int4[256,64] w, float[2,64] t",
            opset=21,
        ),
    ],
    "no form": [
        _case("swish", "float[2,8] x", "y = Swish(x)", opset=24),
        _case("rms_norm", "float[2,8] x, float[8] s", "y = RMSNormalization(x, s)", opset=23),
    ],
    "grid rank": [_case("grid_5d", "float[1,2,4,4,4] x, float[1,3,3,3,3] g", "y = GridSample(x, g)")],
    "batch first": [
        _case(
            "lstm_layout",
            "float[1,4,2] x",
            "y, h = LSTM<hidden_size=3, layout=1>(x, w, r)",
            "float[1,12,2] w, float[1,12,3] r",
        ),
    ],
    "resize": [
        _case("cubic", "float[1,2,4,4] x", 'y = Resize<mode="cubic">(x, , s)', "float[4] s = {1,1,2,2}"),
    ],
    "top k": [
        _case(
            "unsorted", "float[1,50] x", "v, i = TopK<sorted=0>(x, k)\ny = Identity(v)", "int64[1] k = {3}"
        ),
    ],
    "type that does not exist": [_case("float64", "double[2,3] x", "y = Relu(x)")],
}

SILENT: dict[str, list[Case]] = {
    "stored type": [
        _case("uint8_zero", IMAGE, PAIR + CONV, f"float s = {{0.05}}, uint8 z = {{0}}, {WEIGHTS}"),
    ],
    "weight axis": [
        _case(
            "weight_axis",
            IMAGE,
            PAIR + "e = DequantizeLinear<axis=1>(w, t, u)\ny = Conv<pads=[1,1,1,1]>(d, e, b)",
            f"{SCALES}, int8[4,3,3,3] w, float[3] t = {{0.01,0.02,0.03}}, int8[3] u = {{0,0,0}}, float[4] b",
        ),
    ],
    "half quantized": [
        _case("weight_only", IMAGE, CONV.replace("(d,", "(x,"), WEIGHTS),
        _case("activation_only", IMAGE, PAIR + "y = Conv(d, w)", f"{SCALES}, float[4,3,3,3] w"),
    ],
    "channel scales": [
        _case(
            "channel_scales",
            IMAGE,
            PAIR.replace("Linear", "Linear<axis=1>") + CONV,
            f"float[3] s = {{0.05,0.04,0.03}}, int8[3] z = {{0,0,0}}, {WEIGHTS}",
        ),
    ],
}
