"""Decomposes Attention, and LinearAttention (ONNX LinearAttention-27) into products of matrices.

    linear:  the sum over earlier tokens is one masked product,
             o = tril(q k') v + q S;  S' = S + k' v
    others:  the recurrence, one token at a time:
             S = exp(g) S (gated);  u = beta (v - k S) (delta), or v;  S = S + k' u;  o = q S

q is scaled. The key/value heads of all batches are one axis; each has ``shared`` query heads.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.compiler.model.rewriting import array_of, dims_of, float_of, input_of, int_of, text_of
from edgekit.compiler.passes.decompositions.recurrent import MOST_STEPS
from edgekit.compiler.passes.decompositions.tape import Operand, Tape, decomposes
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array

FLOAT = int(ir.DataType.FLOAT)
RULES = ("linear", "gated", "delta", "gated_delta")
PAST, DECAY, BETA = 3, 4, 5
"""Optional inputs, by position."""


class _Sizes(NamedTuple):
    batch: int
    steps: int
    heads: int
    shared: int
    key: int
    value: int

    @property
    def rows(self) -> int:
        return self.batch * self.heads


@decomposes("LinearAttention")
def linear_attention(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose LinearAttention: one masked product for rule "linear", else a recurrence over the tokens.

    Raises:
        Inexpressible: a recurrence over more than ``MOST_STEPS`` tokens.
    """
    rule, sizes = text_of(node, "update_rule", "gated_delta"), _sizes(node)
    if sizes is None or rule not in RULES:
        return None
    if rule != "linear" and sizes.steps > MOST_STEPS:
        reason = f"its recurrence has {sizes.steps} steps; at most {MOST_STEPS} are unrolled"
        raise Inexpressible(reason, "export it with shorter sequences")
    tape = Tape(node)
    scale = float_of(node, "scale", 0.0) or 1 / np.sqrt(sizes.key)
    query = tape("Mul", _wide(tape, node, 0), np.array(scale, np.float32))
    key, value = _by_head(tape, node, 1, sizes, sizes.key), _by_head(tape, node, 2, sizes, sizes.value)
    state: Operand = np.zeros((sizes.rows, sizes.key, sizes.value), np.float32)
    if input_of(node, PAST) is not None:
        state = tape.reshape(_wide(tape, node, PAST), (sizes.rows, sizes.key, sizes.value))
    results: tuple[str, str] | None
    if rule == "linear":
        results = _at_once(tape, sizes, query, key, value, state)
    else:
        results = _step_by_step(tape, node, sizes, rule, (query, key, value, state))
    if results is None:
        return None
    output, state = results
    state = tape.reshape(state, (sizes.batch, sizes.heads, sizes.key, sizes.value))
    return tape.body(_narrow(tape, node, 0, output), _narrow(tape, node, 1, state))


def _sizes(node: ir.Node) -> _Sizes | None:
    query, key, value = (dims_of(node.inputs[k]) for k in range(3))
    heads, all_heads = int_of(node, "kv_num_heads", 0), int_of(node, "q_num_heads", 0)
    if query is None or key is None or value is None or heads < 1 or all_heads % heads or not all_heads:
        return None
    sizes = _Sizes(query[0], query[1], heads, all_heads // heads, key[2] // heads, value[2] // heads)
    return sizes if all(sizes) else None


def _wide(tape: Tape, node: ir.Node, index: int) -> str:
    """Return an input in float32, in which ONNX's definition computes."""
    value = node.inputs[index]
    is_float32 = value is not None and value.dtype == ir.DataType.FLOAT
    return f"i{index}" if is_float32 else tape("Cast", f"i{index}", to=FLOAT)


def _narrow(tape: Tape, node: ir.Node, index: int, value: str) -> str:
    kind = node.outputs[index].dtype if index < len(node.outputs) else None
    return value if kind in (None, ir.DataType.FLOAT) else tape("Cast", value, to=int(kind))


def _by_head(tape: Tape, node: ir.Node, index: int, sizes: _Sizes, size: int) -> str:
    """Return an input [batch, steps, heads * size] as [rows, steps, size]."""
    apart = tape.reshape(_wide(tape, node, index), (sizes.batch, sizes.steps, sizes.heads, size))
    return tape.reshape(tape("Transpose", apart, perm=(0, 2, 1, 3)), (sizes.rows, sizes.steps, size))


def _at_once(tape: Tape, sizes: _Sizes, query: str, key: str, value: str, state: Operand) -> tuple[str, str]:
    """Compute all tokens by one product, in which a token reads only itself and those before it."""
    batch, steps, heads, shared, per_key, per_value = sizes
    query = tape.reshape(query, (batch, steps, heads * shared, per_key))
    query = tape("Transpose", query, perm=(0, 2, 1, 3))
    query = tape.reshape(query, (sizes.rows, shared * steps, per_key))
    transposed = tape("Transpose", key, perm=(0, 2, 1))
    mask = np.tile(np.tri(steps, dtype=np.float32), (shared, 1))[None]
    weights = tape("Mul", tape("MatMul", query, transposed), mask)
    output = tape("Add", tape("MatMul", weights, value), tape("MatMul", query, state))
    output = tape.reshape(output, (batch, heads * shared, steps, per_value))
    output = tape.reshape(
        tape("Transpose", output, perm=(0, 2, 1, 3)), (batch, steps, heads * shared * per_value)
    )
    return output, tape("Add", tape("MatMul", transposed, value), state)


def _step_by_step(
    tape: Tape, node: ir.Node, sizes: _Sizes, rule: str, operands: tuple[str, str, str, Operand]
) -> tuple[str, str] | None:
    """Unroll the recurrence; None if an input of the rule is missing."""
    query, key, value, state = operands
    batch, steps, heads, shared, per_key, per_value = sizes
    query = tape.reshape(query, (batch, steps, heads, shared * per_key))
    query = tape("Transpose", query, perm=(0, 2, 1, 3))
    query = tape.reshape(query, (sizes.rows, steps, shared * per_key))
    growth = rate = None
    if rule in ("gated", "gated_delta"):
        dims = dims_of(input_of(node, DECAY))
        if dims is None:
            return None
        growth = tape("Exp", _by_head(tape, node, DECAY, sizes, dims[2] // heads))
    if rule in ("delta", "gated_delta"):
        dims = dims_of(input_of(node, BETA))
        if dims is None:
            return None
        rate = _wide(tape, node, BETA)
        if dims[2] != heads:  # one number for all heads
            rate = tape("Expand", rate, np.array((batch, steps, heads), np.int64))
        rate = tape("Transpose", rate, perm=(0, 2, 1))
        rate = tape.reshape(rate, (sizes.rows, steps, 1))
    outputs = []
    for step in range(steps):
        row = tape.part(key, 1, step, step + 1)
        update = tape.part(value, 1, step, step + 1)
        if growth is not None:
            column = tape("Transpose", tape.part(growth, 1, step, step + 1), perm=(0, 2, 1))
            state = tape("Mul", state, column)
        if rate is not None:
            rest = tape("Sub", update, tape("MatMul", row, state))
            update = tape("Mul", rest, tape.part(rate, 1, step, step + 1))
        outer = tape("Mul", tape("Transpose", row, perm=(0, 2, 1)), update)
        state = tape("Add", state, outer)
        current = tape.reshape(tape.part(query, 1, step, step + 1), (sizes.rows, shared, per_key))
        outputs.append(tape.reshape(tape("MatMul", current, state), (batch, 1, heads * shared * per_value)))
    assert isinstance(state, str)
    return (tape("Concat", *outputs, axis=1) if steps > 1 else outputs[0]), state


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
