"""Convolutions, pools and products of matrices: the inverse of ops_conv.py, ops_pool.py, ops_matmul.py."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

from edgekit_tflite.graph import Op
from edgekit_tflite.importer.onnx_graph import OnnxGraph, UnreadableError
from edgekit_tflite.importer.readers import activated, need_rank, reads, reads_custom

DYNAMIC_RANGE = (
    "integer weights are multiplied in float: TFLite rounds the other factor to 8 bits at run time"
)


def same_pads(
    g: OnnxGraph,
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> list[int]:
    """ONNX's pads, all begins and then all ends, by the operator's padding scheme (padding.py).

    Raises:
        UnreadableError: a stride, dilation or size of the kernel is not positive.
    """
    if min(*kernel, *strides, *dilations) < 1:
        raise UnreadableError(
            g.op, f"its kernel is {kernel}, its strides {strides}, its dilations {dilations}"
        )
    padding = g.op.options["padding"]
    if padding == "VALID":
        return [0] * (2 * len(sizes))
    if padding != "SAME":
        raise UnreadableError(g.op, f"its padding is {padding}, which is neither SAME nor VALID")
    begins, ends = [], []
    for size, length, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        reach = (length - 1) * dilation + 1
        total = max((-(-size // stride) - 1) * stride + reach - size, 0)
        begins.append(total // 2)
        ends.append(total - total // 2)
    return begins + ends


@reads("CONV_2D", "DEPTHWISE_CONV_2D", inputs=2)
def conv_2d(g: OnnxGraph, op: Op) -> None:
    """Convert the operator to Conv, in groups if the weights have fewer channels than the data."""
    x, w, options = op.inputs[0], op.inputs[1], op.options
    _, height, width, channels = need_rank(g, x, 4)
    out_or_one, kernel_h, kernel_w, last = need_rank(g, w, 4)
    depthwise = op.code == "DEPTHWISE_CONV_2D"
    group = channels if depthwise else channels // max(last, 1)
    out_channels = last if depthwise else out_or_one
    if (
        not group
        or out_channels % group
        or (channels != group * last and not depthwise)
        or (depthwise and out_or_one != 1)
    ):
        raise UnreadableError(op, f"its weights are {g.shape(w)}, its data {g.shape(x)}")
    strides = [options["stride_h"], options["stride_w"]]
    dilations = [options["dilation_h_factor"], options["dilation_w_factor"]]
    pads = same_pads(g, (height, width), (kernel_h, kernel_w), strides, dilations)
    if g.is_dynamic_range(x, w):
        g.notes[DYNAMIC_RANGE] = None
    inputs = [g.nchw(g.value(x)), g.weights(w, (3, 0, 1, 2) if depthwise else (0, 3, 1, 2))]
    inputs += [] if g.is_left_out(2) else [g.value(op.inputs[2])]
    y = g.node(
        "Conv", inputs, kernel_shape=[kernel_h, kernel_w], strides=strides, dilations=dilations, group=group,
        pads=pads,
    )  # fmt: skip
    g.set(op.outputs[0], g.nhwc(activated(g, y)))


@reads("CONV_3D", inputs=2)
def conv_3d(g: OnnxGraph, op: Op) -> None:
    """Convert the operator to Conv; the weights are D, H, W, in, out."""
    x, w, options = op.inputs[0], op.inputs[1], op.options
    shape, weights = need_rank(g, x, 5), need_rank(g, w, 5)
    if not weights[3] or shape[4] % weights[3]:
        raise UnreadableError(op, f"its weights are {weights}, its data {shape}")
    strides = [options["stride_d"], options["stride_h"], options["stride_w"]]
    dilations = [options["dilation_d_factor"], options["dilation_h_factor"], options["dilation_w_factor"]]
    pads = same_pads(g, shape[1:4], weights[:3], strides, dilations)
    inputs = [g.node("Transpose", [g.value(x)], perm=(0, 4, 1, 2, 3)), g.weights(w, (4, 3, 0, 1, 2))]
    inputs += [] if g.is_left_out(2) else [g.value(op.inputs[2])]
    y = g.node(
        "Conv", inputs, kernel_shape=weights[:3], strides=strides, dilations=dilations, pads=pads,
        group=shape[4] // weights[3],
    )  # fmt: skip
    g.set(op.outputs[0], g.node("Transpose", [activated(g, y)], perm=(0, 2, 3, 4, 1)))


@reads("TRANSPOSE_CONV", inputs=3)
def transpose_conv(g: OnnxGraph, op: Op) -> None:
    """ConvTranspose of the output's size, which is an input of the operator."""
    _, w, x = op.inputs[:3]
    bias = None if g.is_left_out(3) else g.value(op.inputs[3])
    if g.is_dynamic_range(x, w):
        g.notes[DYNAMIC_RANGE] = None
    strides = [op.options["stride_h"], op.options["stride_w"]]
    y = _transposed(g, x, w, bias, strides)
    g.set(op.outputs[0], g.nhwc(activated(g, y)))


def _transposed(g: OnnxGraph, x: int, w: int, bias: str | None, strides: Sequence[int]) -> str:
    """ConvTranspose of the shape that the operator's output has; the result is N, C, H, W.

    TFLite pads as the convolution would that makes the input's shape of the output's.
    """
    shape, weights = need_rank(g, x, 4), need_rank(g, w, 4)
    out, kernel = need_rank(g, g.op.outputs[0], 4)[1:3], weights[1:3]
    if min(*kernel, *strides) < 1:
        raise UnreadableError(g.op, f"its kernel is {kernel}, its strides {strides}")
    begins, ends, added = [], [], []
    for size, out_size, length, stride in zip(shape[1:3], out, kernel, strides, strict=True):
        whole = (size - 1) * stride + length
        total = max(whole - out_size, 0)
        if g.op.options.get("padding", "SAME") == "VALID" and total:
            raise UnreadableError(
                g.op, f"its output has {out_size} rows or columns, and VALID padding makes {whole}"
            )
        begins.append(total // 2)
        ends.append(total - total // 2)
        added.append(out_size - whole + total)
    inputs = [g.nchw(g.value(x)), g.weights(w, (3, 0, 1, 2)), *([bias] if bias else [])]
    # Rows that are added hold the bias alone; ONNX allows fewer of them than the stride.
    if any(more >= stride for more, stride in zip(added, strides, strict=True)):
        raise UnreadableError(g.op, f"its output is {out}, larger than its strides can make it")
    return g.node(
        "ConvTranspose",
        inputs,
        kernel_shape=kernel,
        strides=strides,
        pads=begins + ends,
        output_padding=added,
    )


@reads_custom("Convolution2DTransposeBias", inputs=3)
def convolution_2d_transpose_bias(g: OnnxGraph, op: Op) -> None:
    """MediaPipe's transposed convolution with a bias; SAME or VALID, by the size of the output.

    Source: its options are ``TfLiteTransposeConvParams``: padding, stride_width, stride_height, int32 each
    (mediapipe/util/tflite/operations/transpose_conv_bias.cc).
    """
    content = op.options["custom_options"]
    if len(content) < 12 or len(op.inputs) < 3:
        raise UnreadableError(op, f"its options have {len(content)} bytes, its inputs are {len(op.inputs)}")
    _, stride_w, stride_h = struct.unpack_from("<3i", content)
    x, w, bias = op.inputs[:3]
    g.set(op.outputs[0], g.nhwc(_transposed(g, x, w, g.value(bias), [stride_h, stride_w])))


def _pooled(g: OnnxGraph, value: str, op_type: str, **attributes: Any) -> str:
    """Add one pool of a value N, C, H, W, and return its output."""
    options = g.op.options
    _, height, width, _ = need_rank(g, g.op.inputs[0], 4)
    kernel = [options["filter_height"], options["filter_width"]]
    strides = [options["stride_h"], options["stride_w"]]
    pads = same_pads(g, (height, width), kernel, strides, (1, 1))
    return g.node(op_type, [value], kernel_shape=kernel, strides=strides, pads=pads, **attributes)


@reads("MAX_POOL_2D")
def max_pool_2d(g: OnnxGraph, op: Op) -> None:
    """MaxPool."""
    y = _pooled(g, g.nchw(g.value(op.inputs[0])), "MaxPool")
    g.set(op.outputs[0], g.nhwc(activated(g, y)))


@reads("AVERAGE_POOL_2D")
def average_pool_2d(g: OnnxGraph, op: Op) -> None:
    """AveragePool; what is padded is not counted."""
    y = _pooled(g, g.nchw(g.value(op.inputs[0])), "AveragePool", count_include_pad=0)
    g.set(op.outputs[0], g.nhwc(activated(g, y)))


@reads("L2_POOL_2D")
def l2_pool_2d(g: OnnxGraph, op: Op) -> None:
    """sqrt(mean(x^2))."""
    x = g.nchw(g.value(op.inputs[0]))
    y = g.node("Sqrt", [_pooled(g, g.node("Mul", [x, x]), "AveragePool", count_include_pad=0)])
    g.set(op.outputs[0], g.nhwc(activated(g, y)))


@reads("FULLY_CONNECTED", inputs=2)
def fully_connected(g: OnnxGraph, op: Op) -> None:
    """Convert the operator to Gemm of the data as rows, with the weights transposed."""
    x, w, out = op.inputs[0], op.inputs[1], op.outputs[0]
    units, length = need_rank(g, w, 2)
    shape, options = g.shape(x), op.options
    if options["weights_format"] != 0:
        raise UnreadableError(op, "its weights are shuffled for one processor; export it with plain weights")
    if not length or math.prod(shape) % length:
        raise UnreadableError(op, f"its weights are {g.shape(w)}, its data {shape}")
    rows = (math.prod(shape) // length, length)
    if g.is_dynamic_range(x, w):
        g.notes[DYNAMIC_RANGE] = None
    value = g.value(x) if shape == rows else g.reshape(g.value(x), rows)
    inputs = [value, g.value(w), *([] if g.is_left_out(2) else [g.value(op.inputs[2])])]
    y = activated(g, g.node("Gemm", inputs, transB=1))
    result_shape = (rows[0], units)
    if math.prod(result_shape) != math.prod(g.shape(out)):
        raise UnreadableError(op, f"it makes {g.shape(out)} of {shape} and {g.shape(w)}")
    g.set(out, y if g.shape(out) == result_shape else g.reshape(y, g.shape(out)))


@reads("BATCH_MATMUL", inputs=2)
def batch_matmul(g: OnnxGraph, op: Op) -> None:
    """MatMul, its operands transposed if the operator says so."""
    if g.is_dynamic_range(op.inputs[0], op.inputs[1]):
        g.notes[DYNAMIC_RANGE] = None
    operands = []
    for i, swapped in zip(op.inputs[:2], (op.options["adj_x"], op.options["adj_y"]), strict=True):
        rank = len(g.shape(i))
        if rank < 2:
            raise UnreadableError(op, f"it multiplies {g.shape(i)}")
        perm = (*range(rank - 2), rank - 1, rank - 2)
        operands.append(g.weights(i, perm) if swapped else g.value(i))
    g.set(op.outputs[0], g.node("MatMul", operands))
