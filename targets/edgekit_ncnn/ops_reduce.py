"""Reductions, Softmax, CumSum and the norms."""

from __future__ import annotations

from math import prod

import numpy as np

from edgekit.compiler.lowering.index_arguments import constant_scalar
from edgekit.compiler.lowering.op_arguments import Axes
from edgekit.diagnostics import Inexpressible
from edgekit_ncnn.builder import AXES_LIMIT, Builder, Value, lower, natural
from edgekit_ncnn.network import Param
from edgekit_ncnn.ops_math import ADD, MUL, binary, elementwise
from edgekit_ncnn.ops_shape import along, cut, flipped, padded

REDUCTIONS = {
    "ReduceSum": 0, "ReduceSumSquare": 2, "ReduceMean": 3, "ReduceMax": 4, "ReduceMin": 5, "ReduceProd": 6,
    "ReduceL1": 7, "ReduceL2": 8, "ReduceLogSum": 9,
}  # fmt: skip
"""ONNX op -> operation of Reduction: src/layer/reduction.h. LogSumExp overflows there; it is written out."""


def reduced(b: Builder, x: Value, axes: tuple[int, ...], operation: int) -> Value:
    """Emit a Reduction over ONNX axes; the result has them with one element."""
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    stored, cut_axes = natural(x.shape), x.rank - len(natural(x.shape))
    blob_axes = [axis - cut_axes for axis in axes if axis >= cut_axes]
    if x.shape[cut_axes:] != stored or any(x.shape[a] != 1 for a in range(max(cut_axes, 0))):
        groups: list[tuple[bool, list[int]]] = []
        for axis in range(x.rank):
            if groups and (groups[-1][0] == (axis in axes) or x.shape[axis] == 1):
                groups[-1][1].append(axis)
            else:
                groups.append((axis in axes, [axis]))
        if len(groups) > AXES_LIMIT:
            raise Inexpressible(f"it reduces in more than {AXES_LIMIT} groups of axes")
        stored = tuple(prod(x.shape[axis] for axis in group) for _, group in groups) or (1,)
        blob_axes = [index for index, (is_reduced, _) in enumerate(groups) if is_reduced]
    if not blob_axes:
        blob_axes, stored = [1], (*stored[:1], 1, prod(stored[1:]))
    after = tuple(1 if axis in blob_axes else size for axis, size in enumerate(stored))
    params: dict[int, Param] = {0: operation, 1: 0, 3: blob_axes, 4: 1, 5: 1}
    return b.reshape(b.emit("Reduction", [b.blob(x, stored)], after, params), shape)


@lower.family(REDUCTIONS, since=13, doc="Emit Reduction over the node's axes.")
def _reduction(operation: int, b: Builder, data: Value, *, axes: Axes | None, keepdims: bool) -> Value:
    result = reduced(b, data, axes or (), operation) if data.rank else data
    return b.reshape(result, b.out_shape())


@lower("Softmax", since=13)
def softmax(b: Builder, input: Value, *, axis: int = -1) -> Value:
    """Emit Softmax."""
    name, stored, dim = along(b, input, axis)
    return b.reshape(b.emit("Softmax", [name], stored, {0: dim, 1: 1}), input.shape)


@lower("CumSum", since=14)
def cum_sum(b: Builder, x: Value, axis: Value, *, exclusive: int = 0, reverse: int = 0) -> Value:
    """CumulativeSum, between two Flips in reverse; exclusive ones begin with a zero."""
    index = constant_scalar(axis, "axis") % x.rank
    x = flipped(b, x, index) if reverse else x
    if exclusive:
        x = cut(b, padded(b, x, index, 1, 0), index, 0, x.shape[index])
    name, stored, dim = along(b, x, index)
    sums = b.reshape(b.emit("CumulativeSum", [name], stored, {0: dim}), x.shape)
    return flipped(b, sums, index) if reverse else sums


def normalized(b: Builder, x: Value, rows: int, epsilon: float) -> Value:
    """Normalize each of ``rows`` equal parts of ``x`` to a mean of 0 and a variance of 1."""
    stored = (rows, x.size // rows)
    params = {0: stored[1], 1: float(epsilon), 2: 0}
    return b.reshape(b.emit("LayerNorm", [b.blob(x, stored)], stored, params), x.shape)


def _affine(b: Builder, x: Value, scale: Value | None, offset: Value | None) -> Value:
    x = binary(b, x, scale, MUL) if scale is not None else x
    return binary(b, x, offset, ADD) if offset is not None else x


@lower("LayerNormalization", since=17)
def layer_normalization(
    b: Builder, X: Value, Scale: Value, B: Value | None = None, *, axes: Axes, epsilon: float
) -> Value:
    """LayerNorm; not the mean and the deviation."""
    size = prod(X.shape[a] for a in axes)
    bias = np.zeros(size) if B is None else B.const
    if Scale.const is None or bias is None or Scale.size != size or bias.size != size:
        return _affine(b, normalized(b, X, X.size // size, epsilon), Scale, B)
    stored = (X.size // size, size)
    params = {0: size, 1: float(epsilon), 2: 1}
    weights = [np.asarray(Scale.const).ravel(), np.asarray(bias).ravel()]
    return b.reshape(b.emit("LayerNorm", [b.blob(X, stored)], stored, params, weights), X.shape)


@lower("RMSNormalization", since=23)
def rms_normalization(b: Builder, X: Value, scale: Value, *, axes: Axes, epsilon: float) -> Value:
    """RMSNorm."""
    size = prod(X.shape[a] for a in axes)
    stored = (X.size // size, size)
    params = {0: size, 1: float(epsilon), 2: 0}
    unscaled = b.emit("RMSNorm", [b.blob(X, stored)], stored, params)
    return binary(b, b.reshape(unscaled, X.shape), scale, MUL)


def _by_channel(b: Builder, value: Value, rank: int) -> Value:
    return b.reshape(value, (value.size, *(1,) * (rank - 2)))


@lower("InstanceNormalization", since=22)
def instance_normalization(
    b: Builder, input: Value, scale: Value, B: Value, *, epsilon: float = 1e-5
) -> Value:
    """LayerNorm of each channel, then BinaryOps."""
    unscaled = normalized(b, input, prod(input.shape[:2]), epsilon)
    return _affine(b, unscaled, _by_channel(b, scale, input.rank), _by_channel(b, B, input.rank))


@lower("GroupNormalization", since=21)
def group_normalization(
    b: Builder, X: Value, scale: Value, bias: Value, *, num_groups: int, epsilon: float
) -> Value:
    """LayerNorm of each group, then BinaryOps."""
    unscaled = normalized(b, X, X.shape[0] * num_groups, epsilon)
    return _affine(b, unscaled, _by_channel(b, scale, X.rank), _by_channel(b, bias, X.rank))


@lower("LRN", since=13)
def lrn(
    b: Builder, X: Value, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Value:
    """LRN across channels, with a window that has a middle."""
    stored = natural(X.shape)
    if X.shape[0] != 1 or len(stored) != 3 or size % 2 == 0:
        raise Inexpressible("ncnn's LRN has four axes, no batch and an odd size")
    params = {0: 0, 1: size, 2: float(alpha), 3: float(beta), 4: float(bias)}
    return b.reshape(b.emit("LRN", [b.blob(X, stored)], stored, params), X.shape)


@lower("LpNormalization", since=22)
def lp_normalization(b: Builder, input: Value, *, axis: int = -1, p: int = 2) -> Value:
    """Divide by the norm along an axis; 0 if that is 0."""
    norm = reduced(b, input, (axis % input.rank,), REDUCTIONS["ReduceL2" if p == 2 else "ReduceL1"])
    smallest = {0: float(np.finfo(np.float32).tiny), 1: float(np.finfo(np.float32).max)}
    return binary(b, input, elementwise(b, "Clip", norm, smallest), 3)
