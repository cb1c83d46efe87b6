"""Pools, reductions, normalizations and Softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from edgekit.compiler.compress.torch.graph_program import (
    GraphProgram,
    Tensor,
    Value,
    Values,
    constant,
    is_float,
    lower,
)
from edgekit.compiler.compress.torch.ops_products import torch_pads
from edgekit.compiler.lowering.op_arguments import Axes
from edgekit.compiler.model.sliding_windows import Window, divisors
from edgekit.diagnostics import Inexpressible

MAX_POOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVG_POOL = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


@lower("MaxPool", since=8)
def max_pool(b: GraphProgram, X: Value, *, frame: Window) -> Values:
    """Emit a max pool, padded by minus infinity as far as the windows reach, which is equivalent to
    ceil_mode."""
    rank = X.rank - 2
    if rank not in MAX_POOL or not is_float(X):
        raise Inexpressible(f"it is {X.dtype} over {rank} axes; PyTorch pools floats over 1 to 3")
    function, sides = MAX_POOL[rank], torch_pads(frame.pads)

    def run(x: Tensor) -> Tensor:
        padded = F.pad(x, sides, value=-math.inf) if any(sides) else x
        return function(padded, frame.kernel, frame.stride, 0, frame.dilation)

    return b.emit(run, X)


@lower("AveragePool", since=7)
def average_pool(b: GraphProgram, X: Value, *, frame: Window, count_include_pad: bool) -> Values:
    """Emit the sum of each window divided by the number of its elements that count."""
    rank = X.rank - 2
    if rank not in AVG_POOL or frame.is_dilated:
        raise Inexpressible("PyTorch supports average pooling on 1 to 3 spatial axes without dilations")
    function, sides = AVG_POOL[rank], torch_pads(frame.pads)
    shares = math.prod(frame.kernel) / divisors(frame, count_include_pad)
    factor = None if (shares == 1).all() else constant(shares)

    def run(x: Tensor) -> Tensor:
        pooled = function(F.pad(x, sides) if any(sides) else x, frame.kernel, frame.stride)
        return pooled if factor is None else pooled * factor.to(x.dtype)

    return b.emit(run, X)


@lower.family({"GlobalAveragePool": torch.mean, "GlobalMaxPool": torch.amax}, since=1, doc="{op}.")
def _global_pool(function: Callable[..., Tensor], b: GraphProgram, X: Value) -> Values:
    axes = tuple(range(2, X.rank))
    return b.emit(lambda x: function(x, axes, keepdim=True), X)


Reduction = Callable[[Tensor, tuple[int, ...], bool], Tensor]
REDUCTIONS: Mapping[str, Reduction] = {
    "ReduceL1": lambda x, axes, keep: x.abs().sum(axes, keep),
    "ReduceL2": lambda x, axes, keep: (x * x).sum(axes, keep).sqrt(),
    "ReduceLogSumExp": torch.logsumexp,
    "ReduceMax": lambda x, axes, keep: x.amax(axes, keep),
    "ReduceMean": lambda x, axes, keep: x.mean(axes, keep),
    "ReduceMin": lambda x, axes, keep: x.amin(axes, keep),
    "ReduceSum": lambda x, axes, keep: x.sum(axes, keep, dtype=x.dtype),
    "ReduceSumSquare": lambda x, axes, keep: (x * x).sum(axes, keep, dtype=x.dtype),
}


@lower.family(REDUCTIONS, since=13, doc="``{op}`` over some axes.")
def _reduced(
    function: Reduction, b: GraphProgram, data: Value, *, axes: Axes | None, keepdims: bool
) -> Values:
    if axes is None:
        raise Inexpressible("it has no axes to reduce")
    return b.emit(lambda x: function(x, axes, keepdims), data)


@lower("ArgMax", since=13)
def arg_max(
    b: GraphProgram, data: Value, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
) -> Values:
    """Emit the index of the maximum; no gradient passes through it."""
    if select_last_index:
        raise Inexpressible("select_last_index is not supported in training")
    return b.emit(lambda x: x.argmax(axis, bool(keepdims)), data)


@lower.family(
    {"Softmax": torch.softmax, "LogSoftmax": torch.log_softmax}, since=13, doc="{op} over one axis."
)
def _softmax(function: Callable[..., Tensor], b: GraphProgram, input: Value, *, axis: int = -1) -> Values:
    return b.emit(lambda x: function(x, axis), input)


@lower("LayerNormalization", since=17)
def layer_normalization(
    b: GraphProgram, X: Value, Scale: Value, B: Value | None = None, *, axes: Axes, epsilon: float
) -> Values:
    """Emit a normalization to mean 0 and variance 1 over the last axes, then scale and shift."""

    def run(x: Tensor, scale: Tensor, shift: Tensor | None = None) -> Tensor:
        normalized = _standard(x, axes, epsilon) * scale
        return normalized if shift is None else normalized + shift

    return b.emit(run, X, Scale, B)


@lower("RMSNormalization", since=23)
def rms_normalization(b: GraphProgram, X: Value, scale: Value, *, axes: Axes, epsilon: float) -> Values:
    """Emit a normalization to root mean square 1 over the last axes, then scale."""
    return b.emit(lambda x, s: x * torch.rsqrt((x * x).mean(axes, True) + epsilon) * s, X, scale)


@lower("InstanceNormalization", since=6)
def instance_normalization(
    b: GraphProgram, input: Value, scale: Value, B: Value, *, epsilon: float = 1e-5
) -> Values:
    """Emit a normalization of each channel of each sample to mean 0 and variance 1, then scale and shift."""
    spatial_axes, wide = tuple(range(2, input.rank)), (-1, *[1] * (input.rank - 2))

    def run(x: Tensor, s: Tensor, shift: Tensor) -> Tensor:
        return _standard(x, spatial_axes, epsilon) * s.reshape(wide) + shift.reshape(wide)

    return b.emit(run, input, scale, B)


@lower("GroupNormalization", since=21)
def group_normalization(
    b: GraphProgram, X: Value, scale: Value, bias: Value, *, num_groups: int, epsilon: float
) -> Values:
    """Emit a normalization of each group of channels to mean 0 and variance 1, then scale and shift."""
    wide = (-1, *[1] * (X.rank - 2))

    def run(x: Tensor, s: Tensor, shift: Tensor) -> Tensor:
        normalized = _standard(x.reshape(x.shape[0], num_groups, -1), (2,), epsilon).reshape(x.shape)
        return normalized * s.reshape(wide) + shift.reshape(wide)

    return b.emit(run, X, scale, bias)


@lower("BatchNormalization", since=15)
def batch_normalization(
    b: GraphProgram, X: Value, scale: Value, B: Value, input_mean: Value, input_var: Value, *, epsilon: float
) -> Values:
    """Emit a normalization with the mean and variance of the model."""
    wide = (-1, *[1] * (X.rank - 2))

    def run(x: Tensor, *parameters: Tensor) -> Tensor:
        s, shift, middle, variance = (parameter.reshape(wide) for parameter in parameters)
        return (x - middle) * torch.rsqrt(variance + epsilon) * s + shift

    return b.emit(run, X, scale, B, input_mean, input_var)


def _standard(x: Tensor, axes: tuple[int, ...], epsilon: float) -> Tensor:
    centred = x - x.mean(axes, True)
    return centred * torch.rsqrt((centred * centred).mean(axes, True) + epsilon)


@lower("LpNormalization", since=1)
def lp_normalization(b: GraphProgram, input: Value, *, axis: int = -1, p: int = 2) -> Values:
    """Emit a division by the norm along one axis; 0 stays 0."""

    def run(x: Tensor) -> Any:
        norm = torch.linalg.vector_norm(x, p, axis, True)
        return torch.where(norm == 0, x, x / norm)

    return b.emit(run, input)
