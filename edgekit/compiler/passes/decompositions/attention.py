"""Decomposes Attention into two MatMuls and a Softmax, the fastest form for engines without a kernel."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.compiler.model.rewriting import array_of, dims_of, float_of, input_of, int_of
from edgekit.compiler.passes.decompositions.tape import Operand, Tape, decomposes
from edgekit.tensor_spec import Array

KINDS = (ir.DataType.FLOAT, ir.DataType.FLOAT16)
KNOWN = frozenset(
    {"is_causal", "kv_num_heads", "q_num_heads", "scale", "softcap", "softmax_precision"}
    | {"qk_matmul_output_mode"}  # of an output that is not asked for
)
"""Attributes of opset 23; nodes with newer ones are not supported."""
HEADS_APART = 4
"""Axes of (batch, heads, length, size); of three axes, heads are packed: (batch, length, heads * size)."""


@decomposes("Attention")
def attention(node: ir.Node) -> onnx.GraphProto | None:
    """Softmax(Q * scale x K' + mask) x V (ONNX Attention-23); None with a past, or with more than one output.

    The scale is on Q, not on the product: one of float16 numbers may leave their range.
    """
    q, k, v = (dims_of(node.inputs[index]) for index in range(3))
    kind = node.inputs[0].dtype if node.inputs[0] is not None else None
    if q is None or k is None or v is None or kind not in KINDS or 0 in (*q, *k, *v):
        return None
    if any(node.inputs[4:]) or any(o.uses() or o.is_graph_output() for o in node.outputs[1:]):
        return None
    if set(node.attributes) - KNOWN or int_of(node, "softmax_precision", int(kind)) != int(kind):
        return None
    tape, apart = Tape(node), len(q) == HEADS_APART
    heads = q[1] if apart else int_of(node, "q_num_heads", 0)
    shared = k[1] if apart else int_of(node, "kv_num_heads", 0)
    if not heads or not shared or heads % shared:
        return None
    query, keys, values = (
        name if apart else _heads(tape, name, dims, count)
        for name, dims, count in (("i0", q, heads), ("i1", k, shared), ("i2", v, shared))
    )
    length, seen_length, size = q[-2], k[-2], q[-1] if apart else q[-1] // heads
    if heads != shared:
        keys, values = (
            _repeated(tape, name, (q[0], shared, seen_length, width), heads // shared)
            for name, width in ((keys, size), (values, v[-1] if apart else v[-1] // shared))
        )
    dtype = kind.numpy()
    scale = float_of(node, "scale", 1 / math.sqrt(size))
    scaled = tape("Mul", query, np.array(scale, dtype)) if scale != 1.0 else query
    scores = tape("MatMul", scaled, tape("Transpose", keys, perm=[0, 1, 3, 2]))
    softcap = float_of(node, "softcap", 0.0)
    if softcap:
        bent = tape("Tanh", tape("Mul", scores, np.array(1 / softcap, dtype)))
        scores = tape("Mul", bent, np.array(softcap, dtype))
    mask, lowest = input_of(node, 3), np.array(np.finfo(dtype).min, dtype)
    causal = np.tril(np.ones((length, seen_length), bool)) if int_of(node, "is_causal", 0) else None
    visible: Operand | None = None
    if mask is not None and mask.dtype == ir.DataType.BOOL:
        visible = "i3" if causal is None else tape("And", "i3", causal)
        scores = tape("Where", visible, scores, lowest)
    else:
        if mask is not None:
            scores = tape("Add", scores, "i3")
        if causal is not None:
            scores = tape("Add", scores, np.where(causal, 0, lowest).astype(dtype))
    weights = tape("Softmax", scores, axis=-1)
    if visible is not None and not _sees_something(mask, causal):
        # A fully masked row is zero, not the mean.
        weights = tape("Where", visible, weights, np.zeros((), dtype))
    output = tape("MatMul", weights, values)
    if apart:
        return tape.body(output)
    packed = tape("Transpose", output, perm=[0, 2, 1, 3])
    return tape.body(tape.reshape(packed, (q[0], length, heads * (v[-1] // shared))))


def _heads(tape: Tape, x: str, dims: tuple[int, ...], count: int) -> str:
    """Split heads: (batch, length, heads * size) -> (batch, heads, length, size)."""
    apart = tape.reshape(x, (*dims[:2], count, dims[2] // count))
    return tape("Transpose", apart, perm=[0, 2, 1, 3])


def _repeated(tape: Tape, x: str, dims: tuple[int, int, int, int], times: int) -> str:
    """Repeat each head ``times`` times, for grouped-query attention."""
    batch, heads, length, size = dims
    flat = tape.reshape(x, (batch, heads, 1, length * size))
    wide = tape("Concat", *[flat] * times, axis=2)
    return tape.reshape(wide, (batch, heads * times, length, size))


def _sees_something(mask: ir.Value | None, causal: Array | None) -> bool:
    mask_array = array_of(mask)
    if mask_array is None:
        return False
    return bool((mask_array if causal is None else mask_array & causal).any(axis=-1).all())
