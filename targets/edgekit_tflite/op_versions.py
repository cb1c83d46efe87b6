"""The operator version each op needs, so that older runtimes refuse what they don't know and load the rest.

After tensorflow/lite/tools/versioning/op_version.cc (TensorFlow 2.14): the version is the newest feature that
an op's types, ranks and options use. A runtime compares it with the newest version it has registered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from edgekit_tflite.graph import Graph, Op, Tensor

Rule = Callable[[Op, list[Tensor]], int]
"""Operator and its inputs (without those left out) -> version."""


def op_version(graph: Graph, op: Op) -> int:
    """Return the version to write for ``op``."""
    inputs = [graph.tensors[i] for i in op.inputs if i >= 0]
    return VERSIONS[op.code](op, inputs) if op.code in VERSIONS else 1


def _int8(op: Op, inputs: list[Tensor]) -> int:
    return 2 if inputs[0].dtype == "int8" else 1


def _int8_or_bool(op: Op, inputs: list[Tensor]) -> int:
    return {"int8": 2, "bool": 3}.get(inputs[0].dtype, 1)


def _rank_over_4(op: Op, inputs: list[Tensor]) -> int:
    if max(len(t.shape) for t in inputs) > 4 and len({t.shape for t in inputs}) > 1:
        return 3
    return _int8(op, inputs)


def _by_rank(for_more_axes: int) -> Rule:
    def rule(op: Op, inputs: list[Tensor]) -> int:
        return for_more_axes if len(inputs[0].shape) > 4 else _int8(op, inputs)

    return rule


def _hybrid(x: Tensor, weights: Tensor, one_scale: int, many_scales: int) -> int | None:
    """Return the version for float data and int8 weights with one or many scales; None for other types."""
    if x.dtype != "float32" or weights.dtype != "int8":
        return None
    scales = weights.quantization.scale if weights.quantization is not None else ()
    return many_scales if len(scales) == weights.shape[0] else one_scale


def _conv(op: Op, inputs: list[Tensor]) -> int:
    x, weights = inputs[:2]
    if (version := _hybrid(x, weights, 2, 5)) is not None:
        return version
    return 6 if weights.shape[3] != x.shape[3] else 3 if x.dtype == "int8" else 1


def _depthwise(op: Op, inputs: list[Tensor]) -> int:
    if inputs[0].dtype == "int8":
        return 3
    return 2 if (op.options["dilation_h_factor"], op.options["dilation_w_factor"]) != (1, 1) else 1


def _transpose_conv(op: Op, inputs: list[Tensor]) -> int:
    if op.options.get("fused_activation_function", "NONE") != "NONE":
        return 4
    return 3 if len(inputs) > 3 else 2 if inputs[1].dtype == "int8" else 1


def _fully_connected(op: Op, inputs: list[Tensor]) -> int:
    no_bias = len(inputs) == 2
    if (version := _hybrid(inputs[0], inputs[1], 6 if no_bias else 3, 12)) is not None:
        return version
    if no_bias:
        return 6
    return 5 if op.options["keep_num_dims"] else 4 if inputs[0].dtype == "int8" else 1


def _add(op: Op, inputs: list[Tensor]) -> int:
    return {"int8": 2, "int64": 4}.get(inputs[0].dtype, 1)


def _strided_slice(op: Op, inputs: list[Tensor]) -> int:
    return 4 if len(inputs[0].shape) > 4 else _int8_or_bool(op, inputs)


def _resize(op: Op, inputs: list[Tensor]) -> int:
    is_aligned = op.options.get("half_pixel_centers") or op.options.get("align_corners")
    return 3 if is_aligned else _int8(op, inputs)


def _dequantize(op: Op, inputs: list[Tensor]) -> int:
    if inputs[0].dtype == "float16":
        return 3
    quantization = inputs[0].quantization
    if quantization is not None and len(quantization.scale) > 1:
        return 5
    return _int8(op, inputs)


def _gather(op: Op, inputs: list[Tensor]) -> int:
    if op.options.get("batch_dims"):
        return 5
    return _int8_or_bool(op, inputs)


def _select(op: Op, inputs: list[Tensor]) -> int:
    return 2 if max(len(t.shape) for t in inputs) > 4 else 1


VERSIONS: Mapping[str, Rule] = {
    "ADD": _add,
    "ARG_MAX": _int8,
    "ARG_MIN": _int8,
    "AVERAGE_POOL_2D": _int8,
    "BATCH_MATMUL": _int8,
    "BROADCAST_TO": lambda op, inputs: 3 if inputs[0].dtype == "int8" else 2,
    "CONCATENATION": _int8,
    "CONV_2D": _conv,
    "DEPTHWISE_CONV_2D": _depthwise,
    "DEPTH_TO_SPACE": _int8,
    "DEQUANTIZE": _dequantize,
    "EQUAL": _int8_or_bool,
    "FULLY_CONNECTED": _fully_connected,
    "GATHER": _gather,
    "GREATER": _int8,
    "GREATER_EQUAL": _int8,
    "LEAKY_RELU": _int8,
    "LESS": _int8,
    "LESS_EQUAL": _int8,
    "LOGISTIC": _int8,
    "MAXIMUM": _rank_over_4,
    "MAX_POOL_2D": _int8,
    "MEAN": _int8,
    "MINIMUM": _rank_over_4,
    "MUL": _int8,
    "NOT_EQUAL": _int8_or_bool,
    "PAD": _by_rank(4),
    "PADV2": _by_rank(4),
    "QUANTIZE": _int8,
    "REDUCE_MAX": _int8,
    "REDUCE_MIN": _int8,
    "RELU": _int8,
    "RESIZE_BILINEAR": _resize,
    "RESIZE_NEAREST_NEIGHBOR": _resize,
    "REVERSE_V2": lambda op, inputs: 3 if inputs[0].dtype == "bool" else 1,
    "SELECT_V2": _select,
    "SLICE": _by_rank(5),
    "SOFTMAX": _int8,
    "SPACE_TO_DEPTH": _int8,
    "SPLIT": _int8,
    "SPLIT_V": _int8,
    "STRIDED_SLICE": _strided_slice,
    "SUB": _rank_over_4,
    "SUM": _int8,
    "TANH": _int8,
    "TOPK_V2": _int8,
    "TRANSPOSE": _by_rank(4),
    "TRANSPOSE_CONV": _transpose_conv,
}
