"""Conversions between floats and stored numbers: the inverse of ops_quant.py."""

from __future__ import annotations

import numpy as np

from edgekit_tflite.graph import Op
from edgekit_tflite.importer.onnx_graph import OnnxGraph, UnreadableError
from edgekit_tflite.importer.readers import reads


@reads("DEQUANTIZE")
def dequantize(g: OnnxGraph, op: Op) -> None:
    """Forward the input: integers with a scale are floats here already. float16 is converted."""
    x, out = op.inputs[0], op.outputs[0]
    content = g.content(x)
    if content is not None and content.dtype == np.float16:
        g.set_constant(out, content.astype(np.float32))
    elif g.dtype(x) == "float16":
        g.set(out, g.cast(g.value(x), "float32"))
    elif g.quantization(x) is None:
        raise UnreadableError(op, f"its input is {g.dtype(x)} without a scale")
    else:
        g.set(out, g.value(x))


@reads("QUANTIZE")
def quantize(g: OnnxGraph, op: Op) -> None:
    """Write the Q/DQ pair that every tensor with a scale has."""
    if g.quantization(op.outputs[0]) is None:
        raise UnreadableError(op, f"its output is {g.dtype(op.outputs[0])} without a scale")
    g.set(op.outputs[0], g.value(op.inputs[0]))


@reads("DENSIFY")
def densify(g: OnnxGraph, op: Op) -> None:
    """Forward the constant: sparse constants are read as dense ones."""
    x, out = op.inputs[0], op.outputs[0]
    content = g.content(x)
    if content is None:
        raise UnreadableError(op, "its input is not a constant")
    g.set_constant(out, content)


@reads("FAKE_QUANT")
def fake_quant(g: OnnxGraph, op: Op) -> None:
    """Round to 2^bits numbers from min to max, which are shifted so that 0 is one of them.

    Source: ``NudgeQuantizationRange`` in tensorflow/lite/kernels/internal/quantization_util.cc.
    """
    low, high = float(op.options["min"]), float(op.options["max"])
    bits = int(op.options["num_bits"])
    if op.options["narrow_range"]:
        raise UnreadableError(op, "it leaves out a number (narrow_range), which is for weights only")
    if not (low < high and np.isfinite([low, high]).all()) or not 2 <= bits <= 16:
        raise UnreadableError(op, f"it rounds to {bits} bits from {low} to {high}")
    greatest = 2**bits - 1
    scale = (high - low) / greatest
    zero = min(max(round(-low / scale), 0), greatest)
    bounds = [g.scalar((end - zero) * scale, "float32") for end in (0, greatest)]
    clipped = g.node("Clip", [g.value(op.inputs[0]), *bounds])
    first, step = bounds[0], g.scalar(scale, "float32")
    steps = g.node("Div", [g.node("Sub", [clipped, first]), step])
    rounded = g.node("Floor", [g.node("Add", [steps, g.scalar(0.5, "float32")])])
    g.set(op.outputs[0], g.node("Add", [g.node("Mul", [rounded, step]), first]))
