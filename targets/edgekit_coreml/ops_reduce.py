"""Reductions: ReduceMean ... ReduceLogSumExp, ArgMax, ArgMin, CumSum, TopK."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.compiler.lowering.index_arguments import constant_scalar
from edgekit.compiler.lowering.op_arguments import Axes
from edgekit_coreml.builder import Builder, Value, lower

REDUCTIONS = {"ReduceL1": "reduce_l1_norm", "ReduceL2": "reduce_l2_norm", "ReduceMax": "reduce_max",
              "ReduceMean": "reduce_mean", "ReduceMin": "reduce_min", "ReduceProd": "reduce_prod",
              "ReduceSum": "reduce_sum", "ReduceSumSquare": "reduce_sum_square"}  # fmt: skip
ALONE = {"ReduceL1": "abs", "ReduceL2": "abs", "ReduceSumSquare": "square"}
"""What is left of a reduction over no axes at all."""


def reduce(b: Builder, mil: str, x: Value, axes: Sequence[int], keep: bool = True) -> Value:
    """Emit one reduction operator."""
    return b.emit(mil, x=x, axes=list(axes), keep_dims=bool(keep))


@lower.family({op: (op, mil) for op, mil in REDUCTIONS.items()}, since=13, doc="{0[1]} over any axes.")
def _reduced(names: tuple[str, str], b: Builder, data: Value, *, axes: Axes | None, keepdims: bool) -> Value:
    op, mil = names
    if axes is None:  # without axes each element is reduced alone
        if op == "ReduceSumSquare":
            return b.binary("mul", data, data)
        return b.unary(ALONE[op], data) if op in ALONE else data
    return reduce(b, mil, data, axes, keepdims)


@lower("ReduceLogSum", since=18)
def reduce_log_sum(b: Builder, data: Value, *, axes: Axes | None, keepdims: bool) -> Value:
    """log(sum(x))."""
    total = data if axes is None else reduce(b, "reduce_sum", data, axes, keepdims)
    return b.unary("log", total, epsilon=0.0)


@lower("ReduceLogSumExp", since=18)
def reduce_log_sum_exp(b: Builder, data: Value, *, axes: Axes | None, keepdims: bool) -> Value:
    """max + log(sum(exp(x - max))): the plain form overflows float16 at 11."""
    if axes is None:
        return data
    top = reduce(b, "reduce_max", data, axes)
    shifted = b.unary("exp", b.binary("sub", data, top))
    out = b.binary("add", b.unary("log", reduce(b, "reduce_sum", shifted, axes), epsilon=0.0), top)
    return out if keepdims else b.reshape(out, b.out_shape())


@lower.family(
    {"ArgMax": ("reduce_argmax", "maxima"), "ArgMin": ("reduce_argmin", "minima")}, since=13,
    doc="Return the index of the first or last of equal {0[1]}, along any axis.",
)  # fmt: skip
def _arg(
    names: tuple[str, str], b: Builder, data: Value, *, axis: int = 0, keepdims: int = 1,
    select_last_index: int = 0,
) -> Value:  # fmt: skip
    axis %= data.rank
    if select_last_index:  # the last one is the first one of the mirrored axis
        data = b.emit("reverse", x=data, axes=[axis])
    out = b.emit(names[0], x=data, axis=axis, keep_dims=bool(keepdims))
    if select_last_index:
        out = b.binary("sub", b.scalar(data.shape[axis] - 1, "int32"), out)
    return out


@lower("CumSum", since=14)
def cum_sum(b: Builder, x: Value, axis: Value, *, exclusive: int = 0, reverse: int = 0) -> Value:
    """Emit the cumulative sum along one axis, from either end, with or without the element itself."""
    along = constant_scalar(axis, "axis")
    return b.emit("cumsum", x=x, axis=along % x.rank, exclusive=bool(exclusive), reverse=bool(reverse))


@lower("TopK", since=11)
def top_k(
    b: Builder, X: Value, K: Value, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Value, Value]:
    """Return the k largest or smallest elements along any axis, sorted."""
    k = constant_scalar(K, "k")
    values, indices = b.emit_many("topk", x=X, k=k, axis=axis % X.rank, ascending=not largest)
    return values, indices
