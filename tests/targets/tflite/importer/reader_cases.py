"""For every operator that is read a small .tflite file, and what it is fed."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from edgekit_tflite.graph import TensorQuantization
from flatbuffers import flexbuffers

from edgekit.tensor_spec import Array
from tests.fixtures.tflite_files import TfliteFile

F32, I32, BOOL = "float32", "int32", "bool"
Build = Callable[[TfliteFile], Sequence[int]]
CASES: dict[str, tuple[Build, Mapping[int, Array]]] = {}


def case(name: str, **feeds: Any) -> Callable[[Build], Build]:
    def register(build: Build) -> Build:
        CASES[name] = (build, {int(key[1:]): np.asarray(value) for key, value in feeds.items()})
        return build

    return register


def simple(
    name: str, code: str, shapes: Sequence[Sequence[int]], out: Sequence[int], dtype: str = F32, *,
    made: str = "", feeds: Mapping[str, Any] | None = None, constants: Sequence[Any] = (), **options: Any,
) -> None:  # fmt: skip
    """One operator of inputs of these shapes, then of these constants, with one output."""

    def build(file: TfliteFile) -> Sequence[int]:
        inputs = [file.input(shape, dtype) for shape in shapes]
        inputs += [file.constant(each, "" if isinstance(each, np.ndarray) else I32) for each in constants]
        return file.op(code, inputs, (out, made or dtype), **options)

    case(name, **(feeds or {}))(build)


S = (2, 3, 4)
UNARY = (
    "ABS CEIL COS ELU EXP FLOOR HARD_SWISH LOGISTIC LOG_SOFTMAX NEG RELU RELU6 RELU_N1_TO_1 RELU_0_TO_1 ROUND"
    " SIGN SIN SQUARE TANH ZEROS_LIKE"
)
for _code in UNARY.split():
    simple(_code.lower(), _code, [S], S)
for _code in ("LOG", "RSQRT", "SQRT"):
    simple(_code.lower(), _code, [S], S, feeds={"x0": np.linspace(0.1, 9, 24, dtype=np.float32).reshape(S)})
for _code in ("MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE"):
    simple(_code.lower(), _code, [S, (4,)], S)
    simple(f"{_code.lower()} of integers", _code, [S, (4,)], S, I32)
for _code in ("ADD", "SUB", "MUL", "DIV"):
    for _act in ("NONE", "RELU", "RELU6", "RELU_N1_TO_1"):
        simple(f"{_code.lower()} {_act}", _code, [S, (3, 1)], S, fused_activation_function=_act)
for _code in ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"):
    simple(_code.lower(), _code, [S, S], S, I32, made=BOOL)
for _code in ("LOGICAL_AND", "LOGICAL_OR"):
    simple(_code.lower(), _code, [S, S], S, BOOL)
simple("logical_not", "LOGICAL_NOT", [S], S, BOOL)
_signs = {"x0": np.array([7, -7, 7, -7, 6, -6], np.int32), "x1": np.array([3, 3, -3, -3, 3, -3], np.int32)}
for _code in ("FLOOR_DIV", "FLOOR_MOD"):
    simple(f"{_code.lower()} of integers", _code, [(6,), (6,)], (6,), I32, feeds=_signs)
    _floats = {key: value.astype(np.float32) / 2 for key, value in _signs.items()}
    simple(_code.lower(), _code, [(6,), (6,)], (6,), feeds=_floats)
simple("pow", "POW", [S, S], S, feeds={"x0": np.linspace(0.1, 2, 24, dtype=np.float32).reshape(S)})
simple("bitwise_xor", "BITWISE_XOR", [S, S], S, I32)
simple("add_n", "ADD_N", [S, S, S], S)
simple("leaky_relu", "LEAKY_RELU", [S], S, alpha=0.25)
simple("gelu", "GELU", [S], S, approximate=False)
simple("gelu by tanh", "GELU", [S], S, approximate=True)
simple("softmax", "SOFTMAX", [S], S, beta=1.0)
simple("softmax with a factor", "SOFTMAX", [S], S, beta=2.5)
simple(
    "prelu",
    "PRELU",
    [(1, 3, 2, 4)],
    (1, 3, 2, 4),
    constants=[np.array([[[0.1, -0.2, 0.3, 0.4]]], np.float32)],
)
simple("l2_normalization", "L2_NORMALIZATION", [S], S, fused_activation_function="NONE")
simple("local_response_normalization", "LOCAL_RESPONSE_NORMALIZATION", [(1, 3, 2, 8)], (1, 3, 2, 8),
       radius=2, bias=1.5, alpha=0.3, beta=0.6)  # fmt: skip
simple("cumsum", "CUMSUM", [S], S, constants=[1], exclusive=False, reverse=False)
simple("cumsum backwards without itself", "CUMSUM", [S], S, constants=[-1], exclusive=True, reverse=True)
for _bits in (8, 4):
    simple(f"fake_quant, {_bits} bits", "FAKE_QUANT", [S], S, min=-1.3, max=2.1, num_bits=_bits,
           narrow_range=False)  # fmt: skip
_quarters = {"x0": np.array([1, 1, -1, -1, 0.5], np.float32), "x1": np.array([2, -2, 2, -2, 0], np.float32)}
simple("atan2", "ATAN2", [(5,), (5,)], (5,), feeds=_quarters)

for _code in ("MEAN", "SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN"):
    simple(_code.lower(), _code, [S], (2, 4), constants=[[1]], keep_dims=False)
    simple(f"{_code.lower()}, kept", _code, [S], (1, 3, 1), constants=[[0, -1]], keep_dims=True)
simple("reduce_any", "REDUCE_ANY", [S], (2, 3), BOOL, constants=[[2]], keep_dims=False)
simple("reduce_all", "REDUCE_ALL", [S], (2, 3), BOOL, constants=[[2]], keep_dims=False)
simple("arg_max", "ARG_MAX", [S], (2, 3), made="int64", constants=[2], output_type="INT64")
simple("arg_min", "ARG_MIN", [S], (2, 4), made=I32, constants=[1], output_type="INT32")

simple("reshape", "RESHAPE", [S], (6, 4), constants=[[6, 4]], new_shape=(6, 4))
simple("squeeze", "SQUEEZE", [(1, 3, 1, 4)], (3, 4), squeeze_dims=(0, 2))
simple("expand_dims", "EXPAND_DIMS", [S], (2, 1, 3, 4), constants=[1])
simple("transpose", "TRANSPOSE", [S], (4, 2, 3), constants=[[2, 0, 1]])
simple("concatenation", "CONCATENATION", [S, S], (2, 6, 4), axis=1, fused_activation_function="NONE")
simple(
    "concatenation, from the end",
    "CONCATENATION",
    [S, S],
    (2, 3, 8),
    axis=-1,
    fused_activation_function="NONE",
)
simple("pack", "PACK", [S, S], (2, 2, 3, 4), axis=1, values_count=2)
simple("pack, last", "PACK", [S, S], (2, 3, 4, 2), axis=-1, values_count=2)
simple("slice", "SLICE", [S], (1, 2, 4), constants=[[1, 0, 0], [1, 2, -1]])
simple("pad", "PAD", [S], (4, 3, 7), constants=[[[1, 1], [0, 0], [1, 2]]])
simple("padv2", "PADV2", [S], (3, 3, 5), constants=[[[1, 0], [0, 0], [0, 1]], np.array(2.5, np.float32)])
simple("mirror_pad", "MIRROR_PAD", [S], (4, 3, 8), constants=[[[1, 1], [0, 0], [2, 2]]], mode="REFLECT")
simple("mirror_pad, the border too", "MIRROR_PAD", [S], (4, 3, 8), constants=[[[1, 1], [0, 0], [2, 2]]],
       mode="SYMMETRIC")  # fmt: skip
simple("tile", "TILE", [S], (2, 9, 8), constants=[[1, 3, 2]])
simple("broadcast_to", "BROADCAST_TO", [(3, 1)], S, constants=[[2, 3, 4]])
simple("reverse_v2", "REVERSE_V2", [S], S, constants=[[1]])
simple("depth_to_space", "DEPTH_TO_SPACE", [(1, 2, 3, 8)], (1, 4, 6, 2), block_size=2)
simple("space_to_depth", "SPACE_TO_DEPTH", [(1, 4, 6, 2)], (1, 2, 3, 8), block_size=2)
simple("space_to_batch_nd", "SPACE_TO_BATCH_ND", [(1, 5, 6, 2)], (6, 3, 2, 2),
       constants=[[2, 3], [[1, 0], [0, 0]]])  # fmt: skip
simple("batch_to_space_nd", "BATCH_TO_SPACE_ND", [(6, 3, 2, 2)], (1, 5, 6, 2),
       constants=[[2, 3], [[1, 0], [0, 0]]])  # fmt: skip
simple("shape", "SHAPE", [S], (3,), made=I32, out_type=2)
simple("rank", "RANK", [S], (), made=I32)
simple("fill", "FILL", [], (2, 3), made=F32, constants=[[2, 3], np.array(1.5, np.float32)])
simple("range", "RANGE", [], (4,), I32, constants=[1, 9, 2])
simple("cast", "CAST", [S], S, made=I32, in_data_type="FLOAT32", out_data_type="INT32",
       feeds={"x0": np.linspace(-9, 9, 24, dtype=np.float32).reshape(S)})  # fmt: skip
simple("gather", "GATHER", [S], (2, 2, 4), constants=[[2, 0]], axis=1, batch_dims=0)
simple(
    "gather, a row in common", "GATHER", [S], (2, 2, 4), constants=[[[2, 0], [1, 1]]], axis=1, batch_dims=1
)
simple("gather_nd", "GATHER_ND", [S], (2, 4), constants=[[[1, 2], [0, 1]]])
simple("embedding_lookup", "EMBEDDING_LOOKUP", [], (3, 2),
       F32, constants=[[2, 0, 2], np.arange(8, dtype=np.float32).reshape(4, 2)])  # fmt: skip
simple("select_v2", "SELECT_V2", [], (2, 3), F32, constants=[
    np.array([[True], [False]]), np.ones((2, 3), np.float32), np.full((3,), 2, np.float32)])  # fmt: skip
simple("select by rows", "SELECT", [], (2, 3), F32, constants=[
    np.array([True, False]), np.ones((2, 3), np.float32), np.full((2, 3), 2, np.float32)])  # fmt: skip
simple("resize_nearest_neighbor", "RESIZE_NEAREST_NEIGHBOR", [(1, 3, 5, 2)], (1, 7, 4, 2), constants=[[7, 4]],
       align_corners=False, half_pixel_centers=False)  # fmt: skip
for _align, _half in ((False, False), (True, False), (False, True)):
    _what = f"{_align} {_half}"
    simple(f"resize_bilinear {_what}", "RESIZE_BILINEAR", [(1, 3, 5, 2)], (1, 7, 4, 2), constants=[[7, 4]],
           align_corners=_align, half_pixel_centers=_half)  # fmt: skip
    simple(f"resize_nearest_neighbor {_what}", "RESIZE_NEAREST_NEIGHBOR", [(1, 3, 5, 2)], (1, 6, 9, 2),
           constants=[[6, 9]], align_corners=_align, half_pixel_centers=_half)  # fmt: skip
for _code in ("MAX_POOL_2D", "AVERAGE_POOL_2D", "L2_POOL_2D"):
    for _padding, _out in (("SAME", (1, 4, 3, 2)), ("VALID", (1, 3, 2, 2))):
        simple(f"{_code.lower()} {_padding}", _code, [(1, 7, 5, 2)], _out, padding=_padding, stride_h=2,
               stride_w=2, filter_height=3, filter_width=3, fused_activation_function="NONE")  # fmt: skip
simple("batch_matmul", "BATCH_MATMUL", [(2, 3, 4), (2, 4, 5)], (2, 3, 5), adj_x=False, adj_y=False)
simple("batch_matmul, transposed", "BATCH_MATMUL", [(2, 4, 3), (2, 5, 4)], (2, 3, 5), adj_x=True, adj_y=True)


def weights(*shape: int) -> Array:
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


def window(padding: str, stride: int = 1, dilation: int = 1, act: str = "NONE") -> dict[str, Any]:
    return {
        "padding": padding, "stride_h": stride, "stride_w": stride, "dilation_h_factor": dilation,
        "dilation_w_factor": dilation, "fused_activation_function": act,
    }  # fmt: skip


@case("conv_2d, SAME, stride 2")
def _(f: TfliteFile) -> Sequence[int]:
    inputs = [f.input((1, 8, 7, 3)), f.constant(weights(5, 3, 3, 3)), f.constant(weights(5))]
    return f.op("CONV_2D", inputs, ((1, 4, 4, 5), F32), **window("SAME", 2, act="RELU6"))


@case("conv_2d, dilated")
def _(f: TfliteFile) -> Sequence[int]:
    inputs = [f.input((1, 8, 7, 3)), f.constant(weights(5, 3, 3, 3)), f.constant(weights(5))]
    return f.op("CONV_2D", inputs, ((1, 8, 7, 5), F32), **window("SAME", 1, 2))


@case("conv_2d in groups")
def _(f: TfliteFile) -> Sequence[int]:
    inputs = [f.input((1, 6, 6, 4)), f.constant(weights(6, 3, 3, 2)), f.constant(weights(6))]
    return f.op("CONV_2D", inputs, ((1, 4, 4, 6), F32), **window("VALID"))


@case("depthwise_conv_2d, two for each channel")
def _(f: TfliteFile) -> Sequence[int]:
    inputs = [f.input((1, 6, 6, 3)), f.constant(weights(1, 3, 3, 6)), f.constant(weights(6))]
    return f.op("DEPTHWISE_CONV_2D", inputs, ((1, 6, 6, 6), F32), depth_multiplier=2, **window("SAME"))


@case("conv_3d")
def _(f: TfliteFile) -> Sequence[int]:
    inputs = [f.input((1, 4, 5, 6, 2)), f.constant(weights(2, 3, 3, 2, 4)), f.constant(weights(4))]
    sizes: dict[str, Any] = {f"stride_{axis}": 1 for axis in "dhw"} | {
        f"dilation_{axis}_factor": 1 for axis in "dhw"
    }
    return f.op(
        "CONV_3D", inputs, ((1, 4, 5, 6, 4), F32), padding="SAME", fused_activation_function="NONE", **sizes
    )


@case("transpose_conv, SAME")
def _(f: TfliteFile) -> Sequence[int]:
    inputs = [f.constant([1, 8, 10, 4], I32), f.constant(weights(4, 3, 3, 2)), f.input((1, 4, 5, 2))]
    return f.op("TRANSPOSE_CONV", inputs, ((1, 8, 10, 4), F32), padding="SAME", stride_h=2, stride_w=2)


@case("transpose_conv, VALID, with a bias")
def _(f: TfliteFile) -> Sequence[int]:
    shape = (1, 9, 11, 4)
    inputs = [
        f.constant(shape, I32),
        f.constant(weights(4, 3, 3, 2)),
        f.input((1, 4, 5, 2)),
        f.constant(weights(4)),
    ]
    return f.op("TRANSPOSE_CONV", inputs, (shape, F32), padding="VALID", stride_h=2, stride_w=2)


@case("fully_connected")
def _(f: TfliteFile) -> Sequence[int]:
    inputs = [f.input((2, 3, 4)), f.constant(weights(5, 12)), f.constant(weights(5))]
    return f.op(
        "FULLY_CONNECTED",
        inputs,
        ((2, 5), F32),
        fused_activation_function="RELU",
        weights_format=0,
        keep_num_dims=False,
    )


@case("fully_connected, axes kept, weights that are computed")
def _(f: TfliteFile) -> Sequence[int]:
    inputs = [f.input((2, 3, 4)), f.input((5, 4)), -1]
    return f.op("FULLY_CONNECTED", inputs, ((2, 3, 5), F32), keep_num_dims=True, weights_format=0)


@case("fully_connected, float16 weights")
def _(f: TfliteFile) -> Sequence[int]:
    (w,) = f.op("DEQUANTIZE", [f.constant(weights(5, 4), "float16")], ((5, 4), F32))
    return f.op(
        "FULLY_CONNECTED", [f.input((2, 4)), w, -1], ((2, 5), F32), weights_format=0, keep_num_dims=False
    )


@case("unpack")
def _(f: TfliteFile) -> Sequence[int]:
    return f.op("UNPACK", [f.input(S)], *[((2, 4), F32)] * 3, num=3, axis=1)


@case("split")
def _(f: TfliteFile) -> Sequence[int]:
    return f.op("SPLIT", [f.constant(2, I32), f.input(S)], *[((2, 3, 2), F32)] * 2, num_splits=2)


@case("split_v")
def _(f: TfliteFile) -> Sequence[int]:
    inputs = [f.input(S), f.constant([1, -1], I32), f.constant(1, I32)]
    return f.op("SPLIT_V", inputs, ((2, 1, 4), F32), ((2, 2, 4), F32), num_splits=2)


@case("topk_v2")
def _(f: TfliteFile) -> Sequence[int]:
    return f.op("TOPK_V2", [f.input(S), f.constant(2, I32)], ((2, 3, 2), F32), ((2, 3, 2), I32))


@case("one_hot")
def _(f: TfliteFile) -> Sequence[int]:
    inputs = [f.constant([0, 2, -1, 3], I32), f.constant(3, I32), *(f.constant(n, F32) for n in (4.0, -1.0))]
    return f.op("ONE_HOT", inputs, ((4, 3), F32), axis=-1)


@case("scatter_nd, twice to one place")
def _(f: TfliteFile) -> Sequence[int]:
    inputs = [f.constant([[1], [3], [1]], I32), f.input((3, 2)), f.constant([4, 2], I32)]
    return f.op("SCATTER_ND", inputs, ((4, 2), F32))


@case("where")
def _(f: TfliteFile) -> Sequence[int]:
    return f.op("WHERE", [f.constant([[True, False], [True, True]], BOOL)], ((3, 2), "int64"))


def _strided(name: str, out: Sequence[int], begin: Any, end: Any, strides: Any, **masks: int) -> None:
    every: dict[str, Any] = dict.fromkeys(
        ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0
    )
    simple(f"strided_slice, {name}", "STRIDED_SLICE", [(4, 5, 6)], out, constants=[begin, end, strides],
           **(every | masks))  # fmt: skip


_strided("plain", (2, 2, 6), [1, 0, 0], [3, 4, 6], [1, 2, 1])
_strided("backwards", (4, 5, 3), [0, 0, -1], [4, 5, 0], [1, 1, -2])
_strided("open at both ends", (4, 2, 6), [9, 1, 9], [9, 3, 9], [1, 1, 1], begin_mask=5, end_mask=5)
_strided("an axis less", (5, 6), [-1, 0, 0], [0, 5, 6], [1, 1, 1], shrink_axis_mask=1)
_strided("an ellipsis", (4, 5), [0, 2], [0, 3], [1, 1], ellipsis_mask=1, shrink_axis_mask=2)
_strided("an axis more", (4, 1, 5, 6), [0, 0], [4, 1], [1, 1], new_axis_mask=2)

Q8, U8 = TensorQuantization((0.05,), (3,)), TensorQuantization((0.02,), (120,))
BIAS = TensorQuantization((0.05 * 0.01,), (0,))


@case(
    "int8: conv_2d, a scale for each channel, and a pool",
    x0=np.arange(-48, 48, dtype=np.int8).reshape(1, 4, 8, 3),
)
def _(f: TfliteFile) -> Sequence[int]:
    rng = np.random.default_rng(3)
    scales = (0.01, 0.02, 0.005, 0.03)
    w = f.constant(rng.integers(-127, 128, (4, 3, 3, 3)), "int8", TensorQuantization(scales, (0,) * 4, 0))
    b = f.constant(
        rng.integers(-500, 500, 4), I32, TensorQuantization(tuple(0.05 * s for s in scales), (0,) * 4, 0)
    )
    x = f.input((1, 4, 8, 3), "int8", Q8)
    y = f.op(
        "CONV_2D",
        [x, w, b],
        ((1, 4, 8, 4), "int8", TensorQuantization((0.4,), (-128,))),
        **window("SAME", act="RELU"),
    )
    pool: dict[str, Any] = {
        "padding": "VALID",
        "stride_h": 2,
        "stride_w": 2,
        "filter_height": 2,
        "filter_width": 2,
    }
    out = ((1, 2, 4, 4), "int8", TensorQuantization((0.4,), (-128,)))
    return f.op("MAX_POOL_2D", y, out, **pool, fused_activation_function="NONE")


@case(
    "uint8: add and requantize",
    x0=np.arange(24, dtype=np.uint8).reshape(S),
    x1=np.arange(200, 224, dtype=np.uint8).reshape(S),
)
def _(f: TfliteFile) -> Sequence[int]:
    x, y = f.input(S, "uint8", U8), f.input(S, "uint8", TensorQuantization((0.04,), (100,)))
    (z,) = f.op(
        "ADD", [x, y], (S, "uint8", TensorQuantization((0.08,), (100,))), fused_activation_function="NONE"
    )
    return f.op("QUANTIZE", [z], (S, "int8", TensorQuantization((0.1,), (0,))))


@case("int16: quantize and dequantize")
def _(f: TfliteFile) -> Sequence[int]:
    y = f.op("QUANTIZE", [f.input(S)], (S, "int16", TensorQuantization((0.001,), (0,))))
    return f.op("DEQUANTIZE", y, (S, F32))


@case("a custom transposed convolution with a bias")
def _(f: TfliteFile) -> Sequence[int]:
    inputs = [f.input((1, 4, 5, 2)), f.constant(weights(4, 3, 3, 2)), f.constant(weights(4))]
    return f.op(
        "Convolution2DTransposeBias", inputs, ((1, 8, 10, 4), F32), custom=struct.pack("<3i", 1, 2, 2)
    )


def detections(regular: bool, threshold: float) -> Build:
    """The end of an SSD detector: 40 boxes, 5 classes and the background, at most 10 detections."""

    def build(f: TfliteFile) -> Sequence[int]:
        rng = np.random.default_rng(0)
        anchors = np.concatenate([rng.random((40, 2)), 0.1 + 0.3 * rng.random((40, 2))], axis=1)
        inputs = [f.input((1, 40, 4)), f.input((1, 40, 6)), f.constant(anchors.astype(np.float32))]
        options = flexbuffers.Builder()
        with options.Map():
            for name, number in (
                ("max_detections", 10),
                ("max_classes_per_detection", 1),
                ("num_classes", 5),
            ):
                options.Int(name, number)
            for name, scale in (("y_scale", 10.0), ("x_scale", 10.0), ("h_scale", 5.0), ("w_scale", 5.0)):
                options.Float(name, scale)
            options.Float("nms_score_threshold", threshold)
            options.Float("nms_iou_threshold", 0.5)
            options.Bool("use_regular_nms", regular)
        shapes = (((1, 10, 4), F32), ((1, 10), F32), ((1, 10), F32), ((1,), F32))
        return f.op("TFLite_Detection_PostProcess", inputs, *shapes, custom=bytes(options.Finish()))

    return build


SCORES = np.random.default_rng(2).random((1, 40, 6)).astype(np.float32)
case("detections", x1=SCORES)(detections(False, 0.3))
case("detections, classes by themselves", x1=SCORES)(detections(True, 0.3))
case("detections, fewer than the most", x1=SCORES)(detections(True, 0.97))
