"""Reductions: ReduceMean ... ReduceLogSumExp, ArgMax, ArgMin, CumSum, TopK."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edgekit.compiler.lowering.index_arguments import constant_scalar
from edgekit.compiler.lowering.op_arguments import Axes
from edgekit.diagnostics import Inexpressible
from edgekit_tflite.builder import Builder, Value, lower
from edgekit_tflite.layout import Perm


def without_axes(perm: Perm, axes: Sequence[int]) -> Perm:
    """``perm`` for the axes that are left when ``axes`` are gone."""
    left = [axis for axis in range(len(perm)) if axis not in axes]
    return tuple(left.index(axis) for axis in perm if axis in left)


def reduce(b: Builder, code: str, x: Value, axes: Sequence[int], keep: bool) -> Value:
    """Emit one reduction operator, in the layout that ``x`` has."""
    logical = x.dtype == "bool" and code in ("REDUCE_MAX", "REDUCE_MIN")
    if logical or b.is_too_narrow(code, [x]):
        return b.cast(reduce(b, code, b.cast(x, "int32"), axes, keep), x.dtype)
    shape = tuple(1 if axis in axes else n for axis, n in enumerate(x.shape))
    perm = x.perm
    if not keep:
        shape = tuple(n for axis, n in enumerate(x.shape) if axis not in axes)
        perm = without_axes(x.perm, axes)
    stored = sorted(x.perm.index(axis) for axis in axes)
    return b.emit(code, [x, b.ints(stored)], b.result(shape, perm, like=x), keep_dims=bool(keep))


Step = Callable[[Builder, Value], Value]


def _same(b: Builder, x: Value) -> Value:
    return x


def _unary(code: str) -> Step:
    return lambda b, x: b.unary(code, x)


REDUCTIONS: dict[str, tuple[Step, str, Step]] = {
    "ReduceL1": (_unary("ABS"), "SUM", _same),
    "ReduceL2": (_unary("SQUARE"), "SUM", _unary("SQRT")),
    "ReduceLogSum": (_same, "SUM", _unary("LOG")),
    "ReduceMax": (_same, "REDUCE_MAX", _same),
    "ReduceMean": (_same, "MEAN", _same),
    "ReduceMin": (_same, "REDUCE_MIN", _same),
    "ReduceProd": (_same, "REDUCE_PROD", _same),
    "ReduceSum": (_same, "SUM", _same),
    "ReduceSumSquare": (_unary("SQUARE"), "SUM", _same),
}
"""Op -> what is done before, the reduction, what is done after."""


@lower.family(REDUCTIONS, since=13, doc="{0[1]} over any axes, in any layout.")
def _reduced(
    steps: tuple[Step, str, Step], b: Builder, data: Value, *, axes: Axes | None, keepdims: bool
) -> Value:
    before, code, after = steps
    x = before(b, data)
    if axes is None:  # without axes each element is reduced alone
        return after(b, x)
    return after(b, reduce(b, code, x, axes, keepdims))


@lower("ReduceLogSumExp", since=18)
def reduce_log_sum_exp(b: Builder, data: Value, *, axes: Axes | None, keepdims: bool) -> Value:
    """max + log(sum(exp(x - max))): the plain form overflows above 88."""
    if axes is None:
        return data
    top = reduce(b, "REDUCE_MAX", data, axes, keep=True)
    shifted = b.unary("EXP", b.binary("SUB", data, top))
    total = b.unary("LOG", reduce(b, "SUM", shifted, axes, keep=True))
    out = b.binary("ADD", total, top)
    return out if keepdims else b.reshape(out, b.out_shape())


@lower.family(
    {"ArgMax": ("ARG_MAX", "maxima"), "ArgMin": ("ARG_MIN", "minima")}, since=13,
    doc="Return the index of the first or last of equal {0[1]}, along any axis.",
)  # fmt: skip
def _arg(
    names: tuple[str, str], b: Builder, data: Value, *, axis: int = 0, keepdims: int = 1,
    select_last_index: int = 0,
) -> Value:  # fmt: skip
    axis %= data.rank
    if select_last_index:
        # The last one is the first one of the mirrored axis.
        data = b.emit("REVERSE_V2", [data, b.ints([data.perm.index(axis)])], b.like(data))
    shape = tuple(n for a, n in enumerate(data.shape) if a != axis)
    out = b.new(shape, "int32", without_axes(data.perm, [axis]))
    b.emit(names[0], [data, b.ints([data.perm.index(axis)])], out, output_type="INT32")
    if select_last_index:
        out = b.binary("SUB", b.constant(np.array([data.shape[axis] - 1], np.int32)), out, "int32")
    return b.reshape(out, b.out_shape()) if keepdims else out


@lower("CumSum", since=14)
def cum_sum(b: Builder, x: Value, axis: Value, *, exclusive: int = 0, reverse: int = 0) -> Value:
    """Emit the cumulative sum along one axis, from either end, with or without the element itself."""
    along = constant_scalar(axis, "axis")
    stored = b.constant(np.array(x.perm.index(along % x.rank), np.int32))
    return b.emit("CUMSUM", [x, stored], b.like(x), exclusive=bool(exclusive), reverse=bool(reverse))


@lower("TopK", since=11)
def top_k(
    b: Builder, X: Value, K: Value, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Value, Value]:
    """Return the k largest or smallest elements along any axis, sorted."""
    axis %= X.rank
    k = constant_scalar(K, "k")
    if not largest and X.dtype not in ("float32", "int32"):
        raise Inexpressible(f"the smallest of {X.dtype} is not supported by TFLite", code="EK1004")
    perm = (*(a for a in X.perm if a != axis), axis)
    x = b.to(X, perm)
    shape = tuple(k if a == axis else n for a, n in enumerate(X.shape))
    if not largest:
        x = b.unary("NEG", x)
    values, indices = b.new(shape, X.dtype, perm), b.new(shape, "int32", perm)
    b.emit_many("TOPK_V2", [x, b.constant(np.array(k, np.int32))], [values, indices])
    if not largest:
        values = b.unary("NEG", values)
    return values, indices
