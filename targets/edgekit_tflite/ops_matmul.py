"""MatMul and Gemm."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgekit.diagnostics import Inexpressible
from edgekit_tflite.builder import Builder, Value, lower
from edgekit_tflite.layout import Perm, identity


def dense(b: Builder, x: Value, weights: Value, bias: Value | None) -> Value:
    """Compute ``x @ weights + bias`` along the last axis of ``x``; constant weights (in, out), constant bias.

    The other axes may be in any order, and keep it.
    """
    if x.columns is not None:
        assert weights.const is not None
        weights = replace(weights, const=weights.const[x.columns])
    last = x.rank - 1
    perm = x.perm if x.perm[-1] == last else (*(a for a in x.perm if a != last), last)
    x = b.to(x, perm)
    channels = weights.shape[1]
    weights = b.fitted(x, weights, bias)
    out = b.result((*x.shape[:-1], channels), perm)
    offset = None if bias is None else b.bias(bias, channels, x, weights)
    return b.emit(
        "FULLY_CONNECTED", [x, b.kernel(weights, (1, 0), axis=0), offset], out,
        fused_activation_function="NONE", keep_num_dims=x.rank != 2,
    )  # fmt: skip


def matmul(b: Builder, x: Value, y: Value) -> Value:
    """Compute ``x @ y`` of rank 2 and more; leading axes broadcast."""
    if y.const is not None and y.rank == 2 and x.const is None:
        # A bias that the next node adds, if the plan has fused it into this node.
        return dense(b, x, y, None if b.form is None or b.form.bias is None else b.handle(b.form.bias))
    if x.const is not None and y.const is not None:
        return b.constant(np.matmul(x.const, y.const), x.dtype)
    rank = max(x.rank, y.rank)
    batch = tuple(int(n) for n in np.broadcast_shapes(x.shape[:-2], y.shape[:-2]))
    shape = (*batch, x.shape[-2], y.shape[-1])
    order = _batch_order(b, x, y, rank)
    left, adj_x = _matrix(b, x, order)
    right, adj_y = _matrix(b, y, order)
    if rank > 5:
        raise Inexpressible(f"it multiplies values of rank {rank}; TFLite supports up to 5")
    if left.tensor == right.tensor and left.const is None:
        # XNNPACK (LiteRT 2.3) computes nonsense for TRANSPOSE, then BATCH_MATMUL of the result with itself.
        right = b.copy(right)
    out = b.result(shape, (*order, rank - 2, rank - 1))
    return b.emit("BATCH_MATMUL", [left, right], out, adj_x=adj_x, adj_y=adj_y)


def _batch_order(b: Builder, x: Value, y: Value, rank: int) -> Perm:
    """Return the order of the leading axes: the larger operand's, if its matrices are stored whole."""
    for value in sorted((x, y), key=lambda v: -v.size):
        if value.const is None and value.rank == rank and set(value.perm[-2:]) == {rank - 2, rank - 1}:
            return value.perm[:-2]
    return identity(rank - 2)


def _matrix(b: Builder, x: Value, order: Perm) -> tuple[Value, bool]:
    """Return an operand with leading axes in ``order``, and whether its matrices are stored transposed."""
    rank = x.rank
    added = len(order) + 2 - rank
    if added and order != identity(len(order)):
        x = b.reshape(x, (1,) * added + x.shape)
        rank, added = x.rank, 0
    leading = identity(rank - 2) if added else order
    swapped = (*leading, rank - 1, rank - 2)
    if x.perm == swapped and x.const is None:
        return x, True
    return b.to(x, (*leading, rank - 2, rank - 1)), False


@lower("MatMul", since=13)
def mat_mul(b: Builder, A: Value, B: Value) -> Value:
    """Multiply matrices of any rank; constant right-hand matrices become FULLY_CONNECTED."""
    x = b.reshape(A, (1, *A.shape)) if A.rank == 1 else A
    y = b.reshape(B, (*B.shape, 1)) if B.rank == 1 else B
    if y.const is not None and y.rank > 2 and y.size == y.shape[-1] * y.shape[-2]:
        # A constant with leading axes of size 1 is one matrix.
        rank = max(x.rank, y.rank)
        x = b.reshape(x, (1,) * (rank - x.rank) + x.shape) if x.rank < rank else x
        y = b.reshape(y, y.shape[-2:])
    out = matmul(b, x, y)
    return out if out.shape == b.out_shape() else b.reshape(out, b.out_shape())


@lower("Gemm", since=13)
def gemm(
    b: Builder, A: Value, B: Value, C: Value | None, *, alpha: float, beta: float, transA: int, transB: int
) -> Value:
    """Compute alpha * A' @ B' + beta * C; scales are folded into constants."""
    x = b.transpose(A, (1, 0)) if transA else A
    width = b.out_shape()[1]
    bias = None
    if C is not None and C.const is not None and C.size in (1, width) and C.shape[:-1] in ((), (1,)):
        bias = C if beta == 1.0 else b.constant(beta * np.asarray(C.const, np.float32))
    if B.const is not None:
        weights = replace(B, shape=B.shape[::-1], const=B.const.T) if transB else B
        if alpha != 1.0:
            weights = b.constant(np.float32(alpha) * np.asarray(weights.const, np.float32))
        out = dense(b, x, weights, bias)
    else:
        out = matmul(b, x, b.transpose(B, (1, 0)) if transB else B)
        if alpha != 1.0:
            out = b.binary("MUL", out, b.scalar(alpha))
        if bias is not None:
            out = b.binary("ADD", out, bias)
    if C is None or bias is not None:
        return out
    return b.binary("ADD", out, C if beta == 1.0 else b.binary("MUL", C, b.scalar(beta)))
