"""Conv and ConvTranspose."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgekit.compiler.model.sliding_windows import TransposedWindow, Window
from edgekit.diagnostics import Inexpressible
from edgekit_coreml.builder import Builder, Value, lower
from edgekit_coreml.rounding import rounded_kernels


def interleaved(frame: Window) -> dict[str, Any]:
    """Return the arguments ``pad_type`` and ``pad`` of a conv or pool, as far as windows reach."""
    pad = [n for pair in frame.pads for n in pair]
    return {"pad_type": "custom", "pad": pad} if any(pad) else {"pad_type": "valid"}


def bias_of(b: Builder, bias: Value | None) -> Value | None:
    """Return a bias in the form that an operator takes: constant, of rank 1."""
    return bias if bias is not None and bias.const is not None else None


def filters(b: Builder, weights: Value) -> Value:
    """Return the weights. If they are rounded to float16, the rounding errors cancel."""
    if weights.const is None or weights.dtype != "float32" or b.compute != "float16":
        return weights
    return b.constant(rounded_kernels(np.asarray(weights.const)))


def added_bias(b: Builder, out: Value, bias: Value | None) -> Value:
    """``out`` plus a bias that the model computes; one that is constant is in the operator already."""
    if bias is None or bias.const is not None:
        return out
    return b.binary("add", out, b.reshape(bias, (1, bias.size, *(1,) * (out.rank - 2))))


@lower("Conv", since=11)
def conv(b: Builder, X: Value, W: Value, B: Value | None = None, *, frame: Window, group: int) -> Value:
    """conv in one, two or three dimensions: grouped, dilated, any padding."""
    if not 3 <= X.rank <= 5:
        raise Inexpressible(f"it has {X.rank - 2} spatial axes; Core ML supports 1 to 3")
    out = b.emit(
        "conv", x=X, weight=filters(b, W), bias=bias_of(b, B), strides=list(frame.stride), groups=group,
        dilations=list(frame.dilation), **interleaved(frame),
    )  # fmt: skip
    return added_bias(b, out, B)


@lower("ConvTranspose", since=11)
def conv_transpose(
    b: Builder, X: Value, W: Value, B: Value | None = None, *, frame: TransposedWindow, group: int
) -> Value:
    """conv_transpose; pads crop the full result, and what output_padding adds beyond it is zeros."""
    if not 3 <= X.rank <= 5:
        raise Inexpressible(f"it has {X.rank - 2} spatial axes; Core ML supports 1 to 3")
    if W.const is None:
        raise Inexpressible("the model computes its weights; they must be constant")
    rank = X.rank - 2
    if min(frame.begin) < 0:
        raise Inexpressible(
            f"it pads its result by {list(frame.begin)} in front, which Core ML's conv_transpose can't"
        )
    missing = [max(-e, 0) for e in frame.end]
    computed = [n - m for n, m in zip(frame.out, missing, strict=True)]
    crop = [max(e, 0) for e in frame.end]
    pad = [n for both in zip(frame.begin, crop, strict=True) for n in both]
    options = {"pad_type": "custom", "pad": pad} if any(pad) else {"pad_type": "valid"}
    bias = None if any(missing) else bias_of(b, B)
    out = b.emit(
        "conv_transpose", x=X, weight=W, bias=bias, strides=list(frame.stride),
        dilations=list(frame.dilation), groups=group,
        output_shape=[X.shape[0], W.shape[1] * group, *computed], **options,
    )  # fmt: skip
    if any(missing):
        after = [n for m in missing for n in (0, m)]
        out = b.emit("pad", x=out, pad=after, mode="constant", constant_val=0.0)
        if B is not None and B.const is not None:
            shape = (1, B.size, *(1,) * rank)
            out = b.binary("add", out, b.constant(np.asarray(B.const).reshape(shape)))
    return added_bias(b, out, B)
