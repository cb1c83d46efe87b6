"""MatMul and Gemm: InnerProduct by constant weights, else MatMul."""

from __future__ import annotations

from math import prod

import numpy as np

from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array
from edgekit_ncnn.builder import Builder, Value, lower
from edgekit_ncnn.integer import INT8_TERM, integer_form
from edgekit_ncnn.network import Param
from edgekit_ncnn.ops_math import ADD, MUL, binary
from edgekit_ncnn.ops_shape import transposed


def dense(b: Builder, x: Value, weights: Array, bias: Array | None, source: Value | None = None) -> Value:
    """Multiply the last axis by constant weights (out, in), those of ``source`` unless they were changed."""
    out, inner = weights.shape
    rows = x.size // inner
    params: dict[int, Param] = {0: out, 1: int(bias is not None), 2: weights.size}
    form = integer_form(x, source, 1, 0) if source is not None and rows == 1 else None
    content = [weights.ravel() if form is None else form.weights, *([] if bias is None else [bias])]
    if form is not None:
        params[INT8_TERM] = form.term
        content += form.scales
    shape = (out,) if rows == 1 else (rows, out)
    name = b.blob(x if form is None else form.source, (inner,) if rows == 1 else (rows, inner))
    product = b.emit("InnerProduct", [name], shape, params, content, typed=True)
    return b.reshape(product, (*x.shape[:-1], out))


def multiplied(b: Builder, x: Value, y: Value) -> Value:
    """Multiply two values as MatMul does; both have two axes or more."""
    outer = tuple(np.broadcast_shapes(x.shape[:-2], y.shape[:-2]))
    shapes = []
    for value in (x, y):
        full = (*(1,) * (len(outer) - value.rank + 2), *value.shape)
        shapes.append(full[: len(outer)])
    merged = [[1, 1]]
    for axis, size in enumerate(outer):
        kinds = [int(shape[axis]) for shape in shapes]
        if size == 1:
            continue
        same = kinds == [size, size] and merged[-1][0] == merged[-1][1]
        if same:
            merged[-1] = [merged[-1][0] * size] * 2
        else:
            merged.append(kinds)
    merged = [pair for pair in merged if pair != [1, 1]] or [[1, 1]]
    if len(merged) > 2:
        raise Inexpressible("its inputs broadcast along more than two groups of axes")
    (m, k), n = x.shape[-2:], y.shape[-1]
    sides = [tuple(pair[i] for pair in merged) for i in (0, 1)]
    lead = tuple(max(pair) for pair in merged)
    product = b.emit("MatMul", [b.blob(x, (*sides[0], m, k)), b.blob(y, (*sides[1], k, n))], (*lead, m, n))
    return b.reshape(product, (*outer, m, n))


@lower("MatMul", since=13)
def matmul(b: Builder, A: Value, B: Value) -> Value:
    """InnerProduct or MatMul."""
    shape = b.out_shape()
    if B.const is not None and B.rank == 2:
        return b.reshape(dense(b, A, np.asarray(B.const).T, None), shape)
    left = A if A.rank > 1 else b.reshape(A, (1, A.size))
    right = B if B.rank > 1 else b.reshape(B, (B.size, 1))
    return b.reshape(multiplied(b, left, right), shape)


@lower("Gemm", since=13)
def gemm(
    b: Builder, A: Value, B: Value, C: Value | None, *, alpha: float, beta: float, transA: int, transB: int
) -> Value:
    """InnerProduct, or MatMul and BinaryOps."""
    x = transposed(b, A, (1, 0)) if transA else A
    out = b.out_shape()
    if B.const is None:
        y = transposed(b, B, (1, 0)) if transB else B
        product = multiplied(b, x, y)
        product = binary(b, product, b.constant(np.array(alpha)), MUL) if alpha != 1 else product
    else:
        plain = np.asarray(B.const)
        weights = np.ascontiguousarray(plain if transB else plain.T)
        fused = C is not None and C.const is not None and prod(C.shape[:-1]) == 1 and C.size in (1, out[1])
        bias = beta * np.broadcast_to(np.asarray(C.const).ravel(), (out[1],)) if fused and C else None
        if alpha != 1:
            weights = weights * np.float32(alpha)
        product = dense(b, x, weights, bias, B if transB and alpha == 1 else None)
        if fused:
            return product
    if C is None:
        return product
    offset = binary(b, C, b.constant(np.array(beta)), MUL) if beta != 1 else C
    return binary(b, product, offset, ADD)
