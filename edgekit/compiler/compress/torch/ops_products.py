"""Conv, ConvTranspose, Gemm, MatMul and Attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (PyTorch's own documents call it so)

from edgekit.compiler.compress.torch.graph_program import GraphProgram, Tensor, Value, Values, lower
from edgekit.compiler.model.sliding_windows import TransposedWindow, Window
from edgekit.diagnostics import Inexpressible

CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
CONV_TRANSPOSE = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def torch_pads(pads: Sequence[tuple[int, int]]) -> list[int]:
    """Order (before, after) of the last axes for ``torch.nn.functional.pad``: the last axis first."""
    return [amount for pair in reversed(pads) for amount in pair]


@lower("Conv", since=1)
def conv(b: GraphProgram, X: Value, W: Value, B: Value | None = None, *, frame: Window, group: int) -> Values:
    """Emit a Conv of one to three spatial axes."""
    rank = X.rank - 2
    if rank not in CONV:
        raise Inexpressible(f"it has {rank} spatial axes; PyTorch supports 1 to 3")
    both = list(zip(frame.begin, frame.declared_end, strict=True))
    function, even = CONV[rank], frame.begin == frame.declared_end

    def run(x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
        if not even:
            x = F.pad(x, torch_pads(both))
        return function(x, w, bias, frame.stride, frame.begin if even else 0, frame.dilation, group)

    return b.emit(run, X, W, B)


@lower("ConvTranspose", since=1)
def conv_transpose(
    b: GraphProgram, X: Value, W: Value, B: Value | None = None, *, frame: TransposedWindow, group: int
) -> Values:
    """Emit the whole result, and cut off the pads; output_padding adds zeros before the bias."""
    rank = X.rank - 2
    if rank not in CONV_TRANSPOSE:
        raise Inexpressible(f"it has {rank} spatial axes; PyTorch supports 1 to 3")
    function = CONV_TRANSPOSE[rank]
    cut = torch_pads([(-before, -after) for before, after in zip(frame.begin, frame.end, strict=True)])

    def run(x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
        full = function(x, w, None, frame.stride, 0, 0, group, frame.dilation)
        cropped = F.pad(full, cut) if any(cut) else full
        return cropped if bias is None else cropped + bias.reshape(-1, *[1] * rank)

    return b.emit(run, X, W, B)


@lower("Gemm", since=7)
def gemm(
    b: GraphProgram,
    A: Value,
    B: Value,
    C: Value | None,
    *,
    alpha: float,
    beta: float,
    transA: int,
    transB: int,
) -> Values:
    """Emit alpha * A @ B + beta * C."""

    def run(a: Tensor, w: Tensor, c: Tensor | None = None) -> Tensor:
        product = (a.T if transA else a) @ (w.T if transB else w)
        if alpha != 1:
            product = alpha * product
        if c is None:
            return product
        return product + (c if beta == 1 else beta * c)

    return b.emit(run, A, B, C)


@lower("MatMul", since=1)
def matmul(b: GraphProgram, A: Value, B: Value) -> Values:
    """Emit a matrix product with numpy's semantics."""
    return b.emit(torch.matmul, A, B)


@lower("Attention", since=23)
def attention(
    b: GraphProgram,
    Q: Value,
    K: Value,
    V: Value,
    attn_mask: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    *,
    is_causal: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    **other: Any,
) -> Values:
    """Emit attention of four dimensions with equal heads, the form of the pass recognize_attention."""
    heads = {operand.shape[1] for operand in (Q, K, V)}
    if {Q.rank, K.rank, V.rank} != {4} or len(heads) != 1 or past_key or past_value or is_causal or softcap:
        raise Inexpressible(
            "only attention on four dimensions, with equal heads, a scale and a mask, is supported in "
            "training"
        )
    factor = scale if scale is not None else 1 / math.sqrt(Q.shape[-1])

    def run(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        scores = (q * factor) @ k.transpose(-1, -2)
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
        return torch.softmax(scores, -1) @ v

    return b.emit(run, Q, K, V, attn_mask)
