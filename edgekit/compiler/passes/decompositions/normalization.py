"""Decomposes normalizations into older or plainer ops."""

from __future__ import annotations

from math import prod

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.compiler.model.rewriting import dims_of, float_of, int_of
from edgekit.compiler.passes.decompositions.tape import Tape, decomposes

KINDS = (ir.DataType.FLOAT, ir.DataType.FLOAT16)


@decomposes("GroupNormalization")
def group_normalization(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose GroupNormalization, with each group as one channel: Reshape -> InstanceNormalization ->
    Reshape -> Mul -> Add."""
    x, kind = dims_of(node.inputs[0]), node.outputs[0].dtype
    if x is None or kind not in KINDS or 0 in x:
        return None
    tape, groups = Tape(node), int_of(node, "num_groups", 1)
    grouped = tape.reshape("i0", (x[0], groups, prod(x[1:]) // groups))
    plain = [fill(groups, kind.numpy()) for fill in (np.ones, np.zeros)]
    epsilon = float_of(node, "epsilon", 1e-5)
    normal = tape.reshape(tape("InstanceNormalization", grouped, *plain, epsilon=epsilon), x)
    scale, bias = (tape.reshape(name, (x[1], *(1,) * (len(x) - 2))) for name in ("i1", "i2"))
    return tape.body(tape("Add", tape("Mul", normal, scale), bias))


@decomposes("RMSNormalization")
def rms_normalization(node: ir.Node) -> onnx.GraphProto | None:
    """x / Sqrt(ReduceMean(x * x) + epsilon) * scale, all but the last product in float32: as ONNX's own
    ``stash_type`` has it, because the square of 256 leaves float16."""
    x, kind = dims_of(node.inputs[0]), node.outputs[0].dtype
    if x is None or kind not in KINDS:
        return None
    tape, axes = Tape(node), np.arange(int_of(node, "axis", -1) % len(x), len(x), dtype=np.int64)
    wide = "i0" if kind == ir.DataType.FLOAT else tape("Cast", "i0", to=int(ir.DataType.FLOAT))
    mean = tape("ReduceMean", tape("Mul", wide, wide), axes, keepdims=1)
    root = tape("Sqrt", tape("Add", mean, np.array(float_of(node, "epsilon", 1e-5), np.float32)))
    normal = tape("Div", wide, root)
    normal = normal if kind == ir.DataType.FLOAT else tape("Cast", normal, to=int(kind))
    return tape.body(tape("Mul", normal, "i1"))


@decomposes("BatchNormalization")
def batch_normalization(node: ir.Node) -> onnx.GraphProto | None:
    """(x - mean) / Sqrt(variance + epsilon) * scale + bias; in training mode by the statistics of the batch,
    which move the running ones."""
    x, kind = dims_of(node.inputs[0]), node.outputs[0].dtype
    if x is None or kind not in KINDS or 0 in x:
        return None
    column = (x[1], *(1,) * (len(x) - 2))
    axes = np.array([0, *range(2, len(x))], np.int64)
    tape, training = Tape(node), int_of(node, "training_mode", 0)
    scale, bias, mean, variance = (tape.reshape(f"i{k}", column) for k in range(1, 5))
    if training:
        mean = tape("ReduceMean", "i0", axes)
    apart = tape("Sub", "i0", mean)
    if training:
        variance = tape("ReduceMean", tape("Mul", apart, apart), axes)
    root = tape("Sqrt", tape("Add", variance, np.array(float_of(node, "epsilon", 1e-5), kind.numpy())))
    results = [tape("Add", tape("Mul", tape("Div", apart, root), scale), bias)]
    momentum = float_of(node, "momentum", 0.9)
    for index, now in enumerate((mean, variance), 1):
        if index < len(node.outputs) and training:
            old = tape("Mul", f"i{index + 2}", np.array(momentum, kind.numpy()))
            new = tape("Mul", tape.reshape(now, (x[1],)), np.array(1 - momentum, kind.numpy()))
            results.append(tape("Add", old, new))
    return tape.body(*results)
