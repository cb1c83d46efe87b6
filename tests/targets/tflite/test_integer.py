"""Operators between Q/DQ pairs: one integer kernel each, and the numbers that ONNX Runtime gives.

The reference computes in float between the pairs, optimizations off. TFLite's kernels round a product of
scales in fixed point: where the exact result lies on the border of two steps, they may be one step off.
"""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from edgekit_tflite.compile import FILE
from edgekit_tflite.run import outside_delegates

from edgekit.compiler.model.reference import Reference
from edgekit.target import Artifact
from edgekit.tensor_spec import Array
from tests.targets.tflite.running import compiled, model_of, ops_of, ran, with_weights


@dataclass(frozen=True)
class Kernel:
    """One operator between pairs.

    Attributes:
        body: Nodes from d (and e) to r.
        ops: Operators of the file without the TRANSPOSEs and RESHAPEs that layouts take.
        shape: Of x, int8 by scale 0.0503 and zero point -5, which d is read from.
        second: Of z, int8 by scale 0.0312 and zero point 9, which e is read from.
        weights: Constants in ONNX text; an int8 one without a value is drawn.
        output: Scale and zero point of r.
        steps: How far a number may be off.
        share: How many numbers may be off at all.
    """

    name: str
    body: str
    ops: dict[str, int]
    shape: str = "1,8,6,6"
    second: str = ""
    weights: str = ""
    output: tuple[float, int] = (0.0977, 3)
    steps: int = 1
    share: float = 0.05
    requantized: int = 0


def conv(
    name: str, attributes: str, kernel: str, per_axis: bool, ops: dict[str, int], shape: str = "1,8,6,6"
) -> Kernel:
    channels = int(kernel.split(",")[0])
    scales = ", ".join(f"{0.002 + 0.001 * i:.3f}" for i in range(channels))
    spread = f"float[{channels}] ws = {{{scales}}}" if per_axis else "float ws = {0.004}"
    bias = ", ".join(f"{0.2 * i - 0.5:.3f}" for i in range(channels))
    body = f"w = DequantizeLinear<axis=0>(wq, ws)\nr = Conv<{attributes}>(d, w, b)"
    weights = f"int8[{kernel}] wq, {spread}, float[{channels}] b = {{{bias}}}"
    return Kernel(name, body, ops, shape, weights=weights)


W = "w = DequantizeLinear(wq, ws)\n"
WQ = "int8[4,8,1,1] wq, float ws = {0.004}"
PER_AXIS = "float[2] ws = {0.004, 0.01}"
BIAS = "float[2] b = {0.5, -0.25}"
TABLE = {"DEQUANTIZE": 1, "QUANTIZE": 1}
CONV, DEPTHWISE = {"CONV_2D": 1}, {"DEPTHWISE_CONV_2D": 1}
FULLY = {"FULLY_CONNECTED": 1}
FIXED = {"Sigmoid": ("LOGISTIC", 1 / 256, -128), "Tanh": ("TANH", 1 / 128, 0)}

KERNELS = [
    conv("conv_1x1", "strides=[1,1]", "4,8,1,1", False, CONV),
    conv("conv_3x3_per_axis", "pads=[1,1,1,1]", "4,8,3,3", True, CONV),
    conv("conv_3x3_stride_2", "pads=[1,1,1,1], strides=[2,2]", "4,8,3,3", True, {**CONV, "PAD": 1}),
    conv("conv_of_an_image", "pads=[2,2,2,2], strides=[2,2]", "4,3,6,6", True, CONV, shape="1,3,12,12"),
    conv("conv_dilated", "pads=[2,2,2,2], dilations=[2,2]", "4,8,3,3", True, CONV),
    conv("conv_groups", "group=2", "4,4,3,3", True, CONV),
    conv("conv_depthwise", "group=8, pads=[1,1,1,1]", "8,1,3,3", True, DEPTHWISE),
    conv("conv_depthwise_multiplied", "group=8", "16,1,3,3", True, DEPTHWISE),
    conv("conv_1d", "pads=[1,1]", "4,8,3", True, CONV, shape="1,8,12"),
    Kernel("conv_without_bias", W + "r = Conv(d, w)", CONV,
           weights=WQ),
    Kernel("conv_int32_bias",
           "w = DequantizeLinear<axis=0>(wq, ws)\nb = DequantizeLinear<axis=0>(bq, bs)\nr = Conv(d, w, b)",
           CONV,
           weights="int8[2,8,1,1] wq, float[2] ws = {0.004, 0.008}, int32[2] bq = {1000, -3000}, "
           "float[2] bs = {0.0002, 0.0004}"),
    Kernel("conv_uint8_weights", "w = DequantizeLinear(wq, ws, wz)\nr = Conv(d, w)", CONV,
           weights="uint8[4,8,1,1] wq, float ws = {0.004}, uint8 wz = {128}"),
    Kernel("conv_least_weights", W + "r = Conv(d, w)", CONV,
           weights="int8[1,8,1,1] wq = {-128,-128,127,0,-128,5,-128,-128}, float ws = {0.004}"),
    Kernel("conv_relu", W + "c = Conv(d, w)\nr = Relu(c)", CONV,
           weights=WQ),
    Kernel("conv_relu_within_the_pair", W + "c = Conv(d, w)\nr = Relu(c)", CONV,
           weights=WQ, output=(0.0203, -128)),
    Kernel("conv_clip", W + "c = Conv(d, w)\nr = Clip(c, lo, hi)", CONV,
           weights=WQ + ", float lo = {0.0}, float hi = {6.0}"),
    Kernel("conv_clip_to_other_bounds", W + "c = Conv(d, w)\nr = Clip(c, lo, hi)",
           {**CONV, "MAXIMUM": 1, "MINIMUM": 1, **TABLE},
           weights=WQ + ", float lo = {-2.0}, float hi = {3.0}"),
    Kernel("conv_then_moved",
           W + "c = Conv(d, w)\nr = MaxPool<kernel_shape=[2,2]>(c)",
           {**CONV, "MAX_POOL_2D": 1}, weights=WQ),
    Kernel("conv_transpose", W + "r = ConvTranspose<strides=[2,2]>(d, w, b)",
           {"TRANSPOSE_CONV": 1},
           weights="int8[8,2,2,2] wq, float ws = {0.004}, " + BIAS),
    Kernel("conv_transpose_per_axis",
           "w = DequantizeLinear<axis=1>(wq, ws)\nr = ConvTranspose<strides=[2,2]>(d, w)",
           {"TRANSPOSE_CONV": 1}, weights="int8[8,2,2,2] wq, " + PER_AXIS),
    Kernel("gemm", "w = DequantizeLinear<axis=0>(wq, ws)\nr = Gemm<transB=1>(d, w, b)", FULLY,
           shape="3,8", weights="int8[2,8] wq, " + PER_AXIS + ", " + BIAS),
    Kernel("gemm_in_out", "w = DequantizeLinear<axis=1>(wq, ws)\nr = Gemm(d, w)", FULLY,
           shape="3,8", weights="int8[8,2] wq, " + PER_AXIS),
    Kernel("matmul", "w = DequantizeLinear<axis=1>(wq, ws)\nr = MatMul(d, w)", FULLY,
           shape="2,3,8", weights="int8[8,2] wq, " + PER_AXIS),
    Kernel("matmul_bias", "w = DequantizeLinear<axis=1>(wq, ws)\nm = MatMul(d, w)\nr = Add(m, b)",
           FULLY, shape="2,3,8",
           weights="int8[8,2] wq, " + PER_AXIS + ", " + BIAS),
    *(Kernel(op.lower(), f"r = {op}(d, e)", {op.upper(): 1}, second="1,8,6,6", output=(0.1471, 4))
      for op in ("Add", "Sub", "Mul")),
    *(Kernel(f"{op.lower()}_of_channels", f"r = {op}(d, e)", {op.upper(): 1}, second="1,8,1,1",
             output=(0.1471, 4))
      for op in ("Add", "Mul")),
    *(Kernel(f"{op.lower()}_number", f"r = {op}(d, k)", {op.upper(): 1, **TABLE}, weights="float k = {1.7}",
             share=0.0) for op in ("Add", "Sub", "Mul", "Div")),
    Kernel("add_stored_number", "k = DequantizeLinear(kq, ks)\nr = Add(d, k)", {"ADD": 1, **TABLE},
           weights="int8[1] kq = {100}, float ks = {0.02}", share=0.0),
    Kernel("number_minus", "r = Sub(k, d)", {"SUB": 1, **TABLE}, weights="float k = {1.7}", share=0.0),
    *(Kernel(op.lower(), f"r = {op}(d)", {code: 1, **TABLE}, share=0.0)
      for op, code in (("Abs", "ABS"), ("Ceil", "CEIL"), ("Exp", "EXP"), ("Floor", "FLOOR"), ("Neg", "NEG"),
                       ("Gelu", "GELU"), ("HardSwish", "HARD_SWISH"), ("Round", "ROUND"))),
    Kernel("cos", "r = Cos(d)", {"COS": 1, **TABLE}, output=(0.01, 0), share=0.0),
    Kernel("hard_sigmoid", "r = HardSigmoid(d)", {"ADD": 1, "MUL": 2, **TABLE}, output=(1 / 255, -128),
           share=0.01),
    *(Kernel(f"{op.lower()}_by_another_scale", f"r = {op}(d)", {code: 1, **TABLE}, output=(0.0101, 0),
             share=0.0) for op, code in (("Sigmoid", "LOGISTIC"), ("Tanh", "TANH"))),
    Kernel("add_constant", "k = DequantizeLinear(kq, ks)\nr = Add(d, k)", {"ADD": 1},
           weights="int8[8,1,1] kq, float ks = {0.02}"),
    Kernel("add_relu", "a = Add(d, e)\nr = Relu(a)", {"ADD": 1}, second="1,8,6,6"),
    *(Kernel(op.lower(), f"r = {op}(d)", {code: 1}, output=(scale, zero), share=0.01)
      for op, (code, scale, zero) in FIXED.items()),
    Kernel("softmax_coarser", "r = Softmax<axis=1>(d)", {"SOFTMAX": 1, "QUANTIZE": 1}, shape="4,10",
           output=(0.0101, 0), requantized=1, share=0.15),
    Kernel("softmax", "r = Softmax<axis=1>(d)", {"SOFTMAX": 1}, shape="4,10", output=(1 / 256, -128)),
    Kernel("softmax_of_channels", "r = Softmax<axis=1>(d)", {"SOFTMAX": 1}, output=(1 / 256, -128)),
    Kernel("leaky_relu", "r = LeakyRelu<alpha=0.1>(d)", {"LEAKY_RELU": 1}),
    Kernel("elu", "r = Elu(d)", {"ELU": 1}),
    Kernel("silu",
           "s = Sigmoid(d)\nsq = QuantizeLinear(s, ss, sz)\n"
           "sd = DequantizeLinear(sq, ss, sz)\nr = Mul(d, sd)",
           {"LOGISTIC": 1, "MUL": 1}, weights="float ss = {0.00390625}, int8 sz = {-128}"),
    Kernel("global_average_pool", "r = GlobalAveragePool(d)", {"MEAN": 1}, output=(0.0203, 3)),
    Kernel("reduce_mean", "r = ReduceMean<keepdims=0>(d, a)", {"MEAN": 1}, weights="int64[2] a = {2,3}",
           output=(0.0203, 3)),
    Kernel("reduce_sum", "r = ReduceSum(d, a)", {"SUM": 1}, weights="int64[1] a = {1}", output=(0.2911, 3)),
    Kernel("average_pool", "r = AveragePool<kernel_shape=[2,2], strides=[2,2]>(d)", DEPTHWISE),
    Kernel("average_pool_whole", "r = AveragePool<kernel_shape=[6,6]>(d)", {"MEAN": 1}, output=(0.0203, 3)),
    Kernel("average_pool_padded",
           "r = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1>(d)",
           {**DEPTHWISE, "PAD": 1}),
    Kernel("concat_requantizes", "r = Concat<axis=1>(d, e)", {"CONCATENATION": 1, "QUANTIZE": 2},
           second="1,4,6,6", requantized=2, share=0.1),
    Kernel("max", "r = Max(d, e)", {"MAXIMUM": 1, "QUANTIZE": 1}, second="1,8,6,6", output=(0.0503, -5),
           requantized=1),
]  # fmt: skip

SAME_SCALE = [
    Kernel("relu", "r = Relu(d)", {"RELU": 1, **TABLE}),
    Kernel("clip_6", "r = Clip(d, lo, hi)", {"RELU6": 1, **TABLE},
           weights="float lo = {0.0}, float hi = {6.0}"),
    Kernel("concat", "r = Concat<axis=1>(d, d)", {"CONCATENATION": 1}),
    Kernel("depth_to_space", "r = DepthToSpace<blocksize=2>(d)", {"DEPTH_TO_SPACE": 1}),
    Kernel("expand", "r = Expand(d, k)", {"BROADCAST_TO": 1},
           shape="1,8,1,6", weights="int64[4] k = {1,8,6,6}"),
    Kernel("flatten", "r = Flatten(d)", {}),
    Kernel("gather", "r = Gather<axis=1>(d, i)", {"GATHER": 1}, weights="int64[3] i = {0, 5, 2}"),
    Kernel("global_max_pool", "r = GlobalMaxPool(d)", {"REDUCE_MAX": 1}),
    Kernel("max_pool", "r = MaxPool<kernel_shape=[2,2], strides=[2,2]>(d)", {"MAX_POOL_2D": 1}),
    Kernel("max_pool_same", "r = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(d)", {"MAX_POOL_2D": 1}),
    Kernel("max_pool_padded", "r = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(d)",
           {"MAX_POOL_2D": 1, "PADV2": 1}),
    Kernel("pad", "r = Pad(d, k)", {"PAD": 1}, weights="int64[8] k = {0,0,1,1,0,0,1,1}"),
    Kernel("pad_number", "r = Pad(d, k, f)", {"PADV2": 1},
           weights="int64[8] k = {0,0,1,1,0,0,1,1}, float f = {1.006}"),
    Kernel("reduce_max", "r = ReduceMax(d, a)", {"REDUCE_MAX": 1}, weights="int64[1] a = {1}"),
    Kernel("reshape", "r = Reshape(d, k)", {}, weights="int64[2] k = {1, -1}"),
    Kernel("resize_nearest", 'r = Resize<mode="nearest", coordinate_transformation_mode="asymmetric", '
           'nearest_mode="floor">(d, , k)', {"CONCATENATION": 2},
           weights="float[4] k = {1.0, 1.0, 2.0, 2.0}"),
    Kernel("resize_linear", 'r = Resize<mode="linear">(d, , k)', {"RESIZE_BILINEAR": 1},
           weights="float[4] k = {1.0, 1.0, 2.0, 2.0}"),
    Kernel("slice", "r = Slice(d, b, e, a)", {"SLICE": 1},
           weights="int64[1] b = {1}, int64[1] e = {3}, int64[1] a = {1}"),
    Kernel("space_to_depth", "r = SpaceToDepth<blocksize=2>(d)", {"SPACE_TO_DEPTH": 1}),
    Kernel("squeeze", "r = Squeeze(d, a)", {}, weights="int64[1] a = {0}"),
    Kernel("split", "r, u = Split<axis=1, num_outputs=2>(d)", {"SLICE": 1}),
    Kernel("tile", "r = Tile(d, k)", {"TILE": 1}, weights="int64[4] k = {1,2,1,1}"),
    Kernel("transpose", "r = Transpose<perm=[0,2,3,1]>(d)", {}),
]  # fmt: skip
"""With the input's scale behind the operator: not a number is off, but in RESIZE_BILINEAR."""


def text_of(kernel: Kernel, dtype: str, output: tuple[float, int]) -> tuple[str, str, str]:
    """Inputs, body and weights of a model from integers to integers."""
    shift = 128 if dtype == "uint8" else 0
    inputs = f"{dtype}[{kernel.shape}] x"
    body = "d = DequantizeLinear(x, xs, xz)\n"
    weights = f"float xs = {{0.0503}}, {dtype} xz = {{{shift - 5}}}, float os = {{{output[0]!r}}}, "
    weights += f"{dtype} oz = {{{output[1] + shift}}}"
    if kernel.second:
        inputs += f", {dtype}[{kernel.second}] z"
        body += "e = DequantizeLinear(z, zs, zz)\n"
        weights += f", float zs = {{0.0312}}, {dtype} zz = {{{shift + 9}}}"
    body += f"{kernel.body}\ny = QuantizeLinear(r, os, oz)"
    return inputs, body, weights + (f", {kernel.weights}" if kernel.weights else "")


def draw(name: str, dtype: str, shape: tuple[int, ...]) -> Array:
    limits = np.iinfo(np.dtype(dtype))
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def plain_kernels(artifact: Artifact) -> Counter[str]:
    """The operators that XNNPACK left, as LiteRT says."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=artifact.files[FILE], num_threads=1)
    interpreter.allocate_tensors()
    outputs = [detail["index"] for detail in interpreter.get_output_details()]
    return Counter(op["op_name"] for op in outside_delegates(interpreter._get_ops_details(), outputs))


def check(kernel: Kernel, dtype: str, output: tuple[float, int], share: float) -> None:
    model = model_of(*text_of(kernel, dtype, output))
    for name, value in model.graph.initializers.items():
        array = value.const_value.numpy() if value.const_value is not None else np.zeros(())
        if name in ("kq", "wq") and not array.any():
            with_weights(model, {name: draw(name, array.dtype.name, array.shape)})
    artifact = compiled(model)
    ops = {code: n for code, n in ops_of(artifact).items() if code not in ("TRANSPOSE", "RESHAPE")}
    shifts = {"QUANTIZE": ops.pop("QUANTIZE", 0) - kernel.ops.get("QUANTIZE", 0)}
    assert ops == {code: n for code, n in kernel.ops.items() if code != "QUANTIZE"}
    tables = len(artifact.facts["tables"])  # they read uint8 as it is
    assert shifts["QUANTIZE"] == (0 if dtype == "int8" else 2 + bool(kernel.second) - tables)
    assert artifact.facts["float_islands"] == []
    assert plain_kernels(artifact) == Counter(
        row["op"].split()[0] for row in artifact.facts["outside_xnnpack"]
    )
    assert len(artifact.facts["requantizations"]) == kernel.requantized
    feeds = {
        str(v.name): draw(f"{kernel.name} {v.name}", dtype, tuple(int(str(n)) for n in v.shape or ()))
        for v in model.graph.inputs
    }
    expected = Reference(model).run(feeds)["y"].astype(int)
    off = np.abs(ran(artifact, feeds)["y"].astype(int) - expected)
    assert off.max() <= kernel.steps
    assert np.mean(off > 0) <= share
    assert len(np.unique(expected)) > 2


@pytest.mark.needs_ort
@pytest.mark.needs_tflite
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
def test_kernel(kernel: Kernel, dtype: str) -> None:
    check(kernel, dtype, kernel.output, kernel.share)


@pytest.mark.needs_ort
@pytest.mark.needs_tflite
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("kernel", SAME_SCALE, ids=lambda k: k.name)
def test_kernel_of_one_scale(kernel: Kernel, dtype: str) -> None:
    check(kernel, dtype, (0.0503, -5), 0.1 if kernel.name == "resize_linear" else 0.0)
