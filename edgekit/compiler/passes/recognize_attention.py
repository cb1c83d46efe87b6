"""Softmax attention from primitives.

    Q [B, H, L, D]   K [B, H, S, D]   V [B, H, S, E]
    MatMul(Softmax(MatMul(Q, Transpose(K)) * scale + mask), V)   =>   Attention<scale>(Q, K, V, mask)

ONNX Attention-23. Only the forms that are the same in meaning: four dimensions with equal batch and heads,
softmax over the last axis, one constant scale (before or after the first MatMul, or none), and at most one
added mask of shape [L, S] or [B or 1, H or 1, L, S].
"""

from __future__ import annotations

import onnx_ir as ir

from edgekit.compiler.model.rewriting import (
    array_of,
    dims_of,
    inner,
    insert_before,
    int_of,
    ints_of,
    node_pass,
    replace_node,
    scalar_of,
)


@node_pass("MatMul")
def recognize_attention(model: ir.Model, node: ir.Node) -> bool:
    """Rewrite every such chain whose scores have no other consumers."""
    softmax = inner(node.inputs[0], node, "Softmax")
    dims = dims_of(node.outputs[0])
    if softmax is None or dims is None or len(dims) != 4 or int_of(softmax, "axis", -1) not in (-1, 3):
        return False
    user, scores, mask = _unmasked(softmax)
    scale = 1.0
    scaled = inner(scores, user, "Mul", "Div")
    if scaled is not None:
        match = _scaled(scaled)
        if match is None:
            return False
        user, scores, scale = scaled, match[0], match[1]
    first = inner(scores, user, "MatMul")
    if first is None:
        return False
    q, k_transposed = first.inputs
    assert q is not None
    before = inner(q, first, "Mul", "Div")
    if before is not None and (match := _scaled(before)) is not None:
        q, scale = match[0], scale * match[1]
    turn = inner(k_transposed, first, "Transpose")
    if turn is None or turn.inputs[0] is None or scale <= 0:
        return False
    perm = ints_of(turn, "perm")
    key, value = turn.inputs[0], node.inputs[1]
    q_dims, kt_dims, v_dims = dims_of(q), dims_of(k_transposed), dims_of(value)
    if q_dims is None or kt_dims is None or v_dims is None or len(perm) != 4 or len(q_dims) != 4:
        return False
    if len(v_dims) != 4 or not q_dims[:2] == kt_dims[:2] == v_dims[:2] or value is None:
        return False
    if mask is not None and not _mask_fits(mask, (*q_dims[:3], kt_dims[3])):
        return False
    straight = [perm[0], perm[1], perm[3], perm[2]]
    if straight != [0, 1, 2, 3]:
        transposed = ir.node("Transpose", [key], {"perm": straight}, name=turn.name)
        key = insert_before(model, first, transposed, f"{turn.outputs[0].name}/key")
        key.type, key.shape = turn.outputs[0].type, ir.Shape([*kt_dims[:2], kt_dims[3], kt_dims[2]])
    inputs = [q, key, value] if mask is None else [q, key, value, mask]
    replace_node(node, ir.node("Attention", inputs, {"scale": float(scale)}, name=node.name))
    return True


def _scaled(node: ir.Node) -> tuple[ir.Value, float] | None:
    """Return (x, c) of ``x * c`` or ``x / c`` with a positive constant that keeps the shape."""
    a, b = node.inputs
    if node.op_type == "Mul" and array_of(a) is not None:
        a, b = b, a
    number = scalar_of(b)
    if a is None or number is None or number <= 0 or dims_of(a) != dims_of(node.outputs[0]):
        return None
    return a, number if node.op_type == "Mul" else 1 / number


def _unmasked(softmax: ir.Node) -> tuple[ir.Node, ir.Value | None, ir.Value | None]:
    """Return (the consumer of the scores, the scores, the mask added to them)."""
    add = inner(softmax.inputs[0], softmax, "Add")
    if add is None:
        return softmax, softmax.inputs[0], None
    for scores, mask in (add.inputs, (add.inputs[1], add.inputs[0])):
        if inner(scores, add, "MatMul", "Mul", "Div") is not None and dims_of(scores) == dims_of(
            add.outputs[0]
        ):
            return add, scores, mask
    return softmax, softmax.inputs[0], None


def _mask_fits(mask: ir.Value, dims: tuple[int, ...]) -> bool:
    shape = dims_of(mask)
    if shape is None or len(shape) not in (2, 4) or shape[-2:] != dims[-2:]:
        return False
    return all(size in (1, full) for size, full in zip(shape, dims[-len(shape) :], strict=True))
