"""MatMul, Gemm and attention."""

from __future__ import annotations

import numpy as np

from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array
from edgekit_coreml.builder import Builder, Value, lower
from edgekit_coreml.ops_logic import broadcast, masked, select
from edgekit_coreml.values import MASK_LIMIT

LINEAR_RANK = 3
"""Core ML's linear takes up to three axes."""


def dense(b: Builder, x: Value, weights: Value, bias: Array | None) -> Value:
    """``x @ weights.T + bias`` along the last axis of ``x``; weights (out, in), constant."""
    flat = x if x.rank <= LINEAR_RANK else b.reshape(x, (x.size // x.shape[-1], x.shape[-1]))
    added = None if bias is None else b.constant(np.array(bias, np.float32))
    out = b.emit("linear", x=flat, weight=weights, bias=added)
    return b.reshape(out, (*x.shape[:-1], weights.shape[0]))


def matmul(b: Builder, x: Value, y: Value) -> Value:
    """``x @ y`` of rank 2 and more, leading axes broadcast."""
    if y.const is not None and y.rank == 2 and x.const is None and x.is_float:
        return dense(b, x, b.constant(np.asarray(y.const, np.float32).T), None)
    if y.packed is not None and y.rank == 2:
        return dense(b, x, b.transpose(y, (1, 0)), None)
    return b.emit("matmul", x=x, y=y, transpose_x=False, transpose_y=False)


@lower("MatMul", since=13)
def mat_mul(b: Builder, A: Value, B: Value) -> Value:
    """Lower MatMul of any ranks. Constant right-hand matrices become linear."""
    x = b.reshape(A, (1, *A.shape)) if A.rank == 1 else A
    y = b.reshape(B, (*B.shape, 1)) if B.rank == 1 else B
    return b.reshape(matmul(b, x, y), b.out_shape())


@lower("Gemm", since=13)
def gemm(
    b: Builder, A: Value, B: Value, C: Value | None, *, alpha: float, beta: float, transA: int, transB: int
) -> Value:
    """alpha * A' @ B' + beta * C; scales are folded into constants."""
    x = b.transpose(A, (1, 0)) if transA else A
    columns = b.out_shape()[1]
    bias = None
    if C is not None and C.const is not None and C.size in (1, columns) and C.shape[:-1] in ((), (1,)):
        bias = np.broadcast_to(beta * np.asarray(C.const, np.float32).reshape(-1), (columns,))
    if B.const is not None:
        weights = np.asarray(B.const, np.float32)
        weights = weights if transB else weights.T
        weights = weights if alpha == 1.0 else np.float32(alpha) * weights
        out = dense(b, x, b.constant(weights), bias)
    elif alpha == 1.0 and B.packed is not None:
        out = dense(b, x, B if transB else b.transpose(B, (1, 0)), bias)
    else:
        out = b.emit("matmul", x=x, y=B, transpose_x=False, transpose_y=bool(transB))
        if alpha != 1.0:
            out = b.binary("mul", out, b.scalar(alpha))
        if bias is not None:
            out = b.binary("add", out, b.constant(bias.copy()))
    if C is None or bias is not None:
        return out
    return b.binary("add", out, C if beta == 1.0 else b.binary("mul", C, b.scalar(beta)))


@lower("Attention", since=23)
def attention(
    b: Builder,
    Q: Value,
    K: Value,
    V: Value,
    attn_mask: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
) -> Value:
    """softmax(Q K' * scale + mask) V, heads packed (rank 3) or apart (rank 4); no past."""
    if past_key is not None or past_value is not None:
        raise Inexpressible("past_key and past_value are a state, which EdgeKit does not keep in Core ML")
    if Q.rank == 3 and (q_num_heads is None or kv_num_heads is None):
        raise Inexpressible("q_num_heads and kv_num_heads are needed for inputs of rank 3")
    q = _heads(b, Q, q_num_heads)
    k, v = _heads(b, K, kv_num_heads), _heads(b, V, kv_num_heads)
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = _repeated(b, k, groups), _repeated(b, v, groups)
    factor = scale if scale is not None else 1.0 / float(np.sqrt(q.shape[3]))
    q = b.binary("mul", q, b.scalar(factor)) if factor != 1.0 else q
    scores = b.emit("matmul", x=q, y=k, transpose_x=False, transpose_y=True)
    if softcap:
        bent = b.unary("tanh", b.binary("mul", scores, b.scalar(1.0 / softcap)))
        scores = b.binary("mul", bent, b.scalar(softcap))
    low = -MASK_LIMIT if b.compute == "float16" else float(np.finfo(np.float32).min)
    if attn_mask is not None and attn_mask.dtype == "bool":
        scores = select(b, attn_mask, scores, b.scalar(low))
    elif attn_mask is not None:
        scores = b.binary("add", scores, masked(b, attn_mask))
    if is_causal:
        allowed = np.tril(np.ones(scores.shape[2:], bool))
        scores = b.binary("add", scores, b.constant(np.where(allowed, 0, low).astype(np.float32)))
    weights = b.unary("softmax", scores, axis=3)
    if attn_mask is not None and attn_mask.dtype == "bool":
        weights = select(b, attn_mask, weights, b.scalar(0.0))  # a row without any key outputs zero
    out = b.emit("matmul", x=weights, y=v, transpose_x=False, transpose_y=False)
    if Q.rank == 4:
        return out
    joined = b.transpose(out, (0, 2, 1, 3))
    return b.reshape(joined, (*joined.shape[:2], joined.shape[2] * joined.shape[3]))


def _heads(b: Builder, x: Value, count: int | None) -> Value:
    """(batch, length, heads * size) as (batch, heads, length, size)."""
    if x.rank == 4:
        return x
    assert count is not None
    apart = b.reshape(x, (*x.shape[:2], count, x.shape[2] // count))
    return b.transpose(apart, (0, 2, 1, 3))


def _repeated(b: Builder, x: Value, times: int) -> Value:
    """Repeat each head ``times`` times in a row, as grouped queries share them."""
    batch, heads, length, size = x.shape
    apart = b.reshape(x, (batch, heads, 1, length * size))
    return b.reshape(
        broadcast(b, apart, (batch, heads, times, length * size)), (batch, heads * times, length, size)
    )
