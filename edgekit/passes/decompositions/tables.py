"""Decomposes ops of ai.onnx.ml on numeric tables: feature selection, thresholds, scaling."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.model.rewriting import dims_of, float_of
from edgekit.passes.decompositions.tape import Tape

FLOAT = int(ir.DataType.FLOAT)


def array_feature_extractor(node: ir.Node) -> onnx.GraphProto | None:
    """Gather along the last axis; a vector becomes a row."""
    result = dims_of(node.outputs[0])
    if result is None:
        return None
    tape = Tape(node)
    read = tape("Gather", "i0", tape.reshape("i1", (-1,)), axis=-1)
    return tape.body(tape.reshape(read, result))


def binarizer(node: ir.Node) -> onnx.GraphProto | None:
    """1 above the threshold, else 0."""
    x = node.inputs[0]
    if x is None or x.dtype is None:
        return None
    tape = Tape(node)
    above = tape("Greater", "i0", np.array(float_of(node, "threshold", 0.0), x.dtype.numpy()))
    return tape.body(tape("Cast", above, to=int(x.dtype)))


def scaler(node: ir.Node) -> onnx.GraphProto:
    """(x - offset) * scale, in float32."""
    tape = Tape(node)
    result = tape("Cast", "i0", to=FLOAT)
    for op, name in (("Sub", "offset"), ("Mul", "scale")):
        if name in node.attributes:
            result = tape(op, result, np.array(node.attributes[name].as_floats(), np.float32))
    return tape.body(result)
