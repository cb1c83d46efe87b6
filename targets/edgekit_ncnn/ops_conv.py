"""Conv, ConvTranspose and the pools.

ncnn's layers have no batch. A batch becomes the outermost spatial axis, along which the kernel is one wide:

    Conv(x: 2x3x8x8, w: 4x3x3x3)  =>  Permute -> Convolution3D(x: 3x2x8x8, w: 4x3x1x3x3) -> Permute
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from edgekit.compiler.model.sliding_windows import TransposedWindow, Window, divisors
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array
from edgekit_ncnn.builder import Builder, Value, lower
from edgekit_ncnn.integer import INT8_TERM, integer_form
from edgekit_ncnn.network import Param
from edgekit_ncnn.ops_math import MUL, binary
from edgekit_ncnn.ops_shape import transposed

SUFFIX = {1: "1D", 2: "", 3: "3D"}
"""Ending of a layer's type, by its number of spatial axes."""
# Numbers of parameters, by spatial axis, the innermost first.
KERNEL, DILATION, STRIDE, BEGIN = (1, 11, 21), (2, 12, 22), (3, 13, 23), (4, 14, 24)
CONV_END = (15, 16, 17)
EXTRA = {1: (18,), 2: (18, 19), 3: (18, 19, 20)}
POOL_STRIDE, POOL_BEGIN, POOL_END = (2, 12, 22), (3, 13, 23), (14, 15, 16)
NUM_OUTPUT, BIAS, WEIGHT_SIZE, GROUP = 0, 5, 6, 7
MOST_SPATIAL = 3


def batch_as_axis(b: Builder, x: Value) -> Value:
    """Return ``x`` as (1, channels, batch, ...) if the batch is not one."""
    if x.shape[0] == 1:
        return x
    swapped = transposed(b, x, (1, 0, *range(2, x.rank)))
    return b.reshape(swapped, (1, *swapped.shape))


def batch_back(b: Builder, x: Value, batch: int) -> Value:
    """Undo ``batch_as_axis``."""
    if batch == 1:
        return x
    squeezed = b.reshape(x, x.shape[1:])
    return transposed(b, squeezed, (1, 0, *range(2, squeezed.rank)))


def _by_axis(keys: Sequence[int], values: Sequence[int]) -> dict[int, Param]:
    return dict(zip(keys, values[::-1], strict=False))


def _spatial(x: Value) -> int:
    axes = x.rank - 2
    if not 1 <= axes <= MOST_SPATIAL:
        batch = "with its batch, " if x.shape[1:2] else ""
        raise Inexpressible(f"{batch}it has {axes} spatial axes; ncnn has 1 to {MOST_SPATIAL}")
    return axes


def _constant(value: Value | None, name: str) -> Array | None:
    if value is None:
        return None
    if value.const is None:
        raise Inexpressible(f"the model computes its {name}; they must be constant")
    return np.asarray(value.const)


@lower("Conv", since=11)
def conv(b: Builder, X: Value, W: Value, B: Value | None = None, *, frame: Window, group: int) -> Value:
    """Emit Convolution or ConvolutionDepthWise, in one to three dimensions."""
    weights, bias = _constant(W, "weights"), _constant(B, "bias")
    assert weights is not None
    out = b.out_shape()
    x = batch_as_axis(b, X)
    extra = x.rank - X.rank
    axes = _spatial(x)
    one, none = (1,) * extra, (0,) * extra
    begin, end = ([*none, *side] for side in zip(*frame.pads, strict=True))
    params: dict[int, Param] = {
        NUM_OUTPUT: out[1],
        **_by_axis(KERNEL, [*one, *frame.kernel]),
        **_by_axis(DILATION, [*one, *frame.dilation]),
        **_by_axis(STRIDE, [*one, *frame.stride]),
        **_by_axis(BEGIN, begin),
        **_by_axis(CONV_END, end),
        BIAS: int(bias is not None),
        WEIGHT_SIZE: weights.size,
    }
    if group != 1:
        params[GROUP] = group
    form = integer_form(X, W, group, axes)
    content = [weights.ravel() if form is None else form.weights, *([] if bias is None else [bias])]
    if form is not None:
        params[INT8_TERM] = form.term
        content += form.scales
    kind = f"Convolution{'DepthWise' if group != 1 else ''}{SUFFIX[axes]}"
    spatial = (*(X.shape[:1] * extra), *out[2:])
    source = x if form is None else form.source
    convolved = b.emit(kind, [b.blob(source, x.shape[1:])], (out[1], *spatial), params, content, typed=True)
    return batch_back(b, b.reshape(convolved, (1, out[1], *spatial)), X.shape[0])


@lower("ConvTranspose", since=11)
def conv_transpose(
    b: Builder, X: Value, W: Value, B: Value | None = None, *, frame: TransposedWindow, group: int
) -> Value:
    """Emit Deconvolution or DeconvolutionDepthWise, in one to three dimensions."""
    weights, bias = _constant(W, "weights"), _constant(B, "bias")
    assert weights is not None
    out = b.out_shape()
    if min(frame.begin) < 0:
        raise Inexpressible(f"it pads its result by {list(frame.begin)} in front, which ncnn can't")
    x = batch_as_axis(b, X)
    extra = x.rank - X.rank
    axes = _spatial(x)
    one, none = (1,) * extra, (0,) * extra
    cut_end, added = [max(n, 0) for n in frame.end], [max(-n, 0) for n in frame.end]
    params: dict[int, Param] = {
        NUM_OUTPUT: out[1],
        **_by_axis(KERNEL, [*one, *W.shape[2:]]),
        **_by_axis(DILATION, [*one, *frame.dilation]),
        **_by_axis(STRIDE, [*one, *frame.stride]),
        **_by_axis(BEGIN, [*none, *frame.begin]),
        **_by_axis(CONV_END, [*none, *cut_end]),
        **_by_axis(EXTRA[axes], [*none, *added]),
        BIAS: int(bias is not None),
        WEIGHT_SIZE: weights.size,
    }
    if group != 1:
        params[GROUP] = group
    grouped = weights.reshape(group, W.shape[0] // group, W.shape[1], -1)
    content = [grouped.transpose(0, 2, 1, 3).ravel(), *([] if bias is None else [bias])]
    kind = f"Deconvolution{'DepthWise' if group != 1 else ''}{SUFFIX[axes]}"
    spatial = (*(X.shape[:1] * extra), *out[2:])
    convolved = b.emit(kind, [b.blob(x, x.shape[1:])], (out[1], *spatial), params, content, typed=True)
    return batch_back(b, b.reshape(convolved, (1, out[1], *spatial)), X.shape[0])


def _pooled(b: Builder, X: Value, frame: Window, average: bool, count_pads: bool) -> Value:
    out = b.out_shape()
    if frame.is_dilated:
        raise Inexpressible("it is dilated, which ncnn's pooling is not")
    # A pool has no weights: its channels and its batch are one axis.
    axes, channels = _spatial(X), X.shape[0] * X.shape[1]
    begin, end = zip(*frame.pads, strict=True)
    params: dict[int, Param] = {
        0: int(average),
        **_by_axis(KERNEL, frame.kernel),
        **_by_axis(POOL_STRIDE, frame.stride),
        **_by_axis(POOL_BEGIN, begin),
        **_by_axis(POOL_END, end),
        5: 1,
    }
    counts, whole = divisors(frame, count_pads), float(prod(frame.kernel))
    if average:
        params[6] = int(count_pads)
    pooled = b.emit(
        f"Pooling{SUFFIX[axes]}", [b.blob(X, (channels, *X.shape[2:]))], (channels, *out[2:]), params
    )
    result = b.reshape(pooled, out)
    if average and count_pads and not (counts == whole).all():
        return binary(b, result, b.constant((whole / counts)[None, None]), MUL)
    return result


@lower("MaxPool", since=12)
def max_pool(b: Builder, X: Value, *, frame: Window) -> Value:
    """Emit Pooling in one to three dimensions, without the indices."""
    return _pooled(b, X, frame, False, False)


@lower("AveragePool", since=19)
def average_pool(b: Builder, X: Value, *, frame: Window, count_include_pad: bool) -> Value:
    """Emit Pooling, in one to three dimensions."""
    return _pooled(b, X, frame, True, count_include_pad)


@lower.family(
    {"GlobalAveragePool": 1, "GlobalMaxPool": 0}, since=1, doc="Emit Pooling over all spatial axes."
)
def _global(average: int, b: Builder, x: Value) -> Value:
    channels = x.shape[0] * x.shape[1]
    inner = x.shape[2:] if x.rank == 4 else (1, prod(x.shape[2:]))
    name = b.blob(x, (channels, *inner))
    return b.reshape(b.emit("Pooling", [name], (channels,), {0: average, 4: 1}), b.out_shape())
