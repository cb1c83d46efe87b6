"""The axes that ONNX's reductions and normalizations run over."""

from __future__ import annotations

from edgekit.compiler.lowering.constant_inputs import NodeInput, constant_ints


def reduced_axes(rank: int, axes: NodeInput | None, noop_with_empty_axes: int) -> tuple[int, ...] | None:
    """Return the axes of ReduceSum, ReduceMean ...: non-negative, sorted, each once.

    Args:
        rank: Rank of the data.
        axes: The node's input, if it has one.
        noop_with_empty_axes: The node's attribute.

    Returns:
        None if nothing is reduced: each element is a reduction of its own.

    Raises:
        Inexpressible: the model computes the axes.
    """
    given = constant_ints(axes, "axes") if axes is not None else ()
    if not given:
        return None if noop_with_empty_axes or rank == 0 else tuple(range(rank))
    return tuple(sorted({axis % rank for axis in given}))


def axes_from(axis: int, rank: int) -> tuple[int, ...]:
    """Return ``axis`` and all axes after it, which LayerNormalization and RMSNormalization reduce.

    >>> axes_from(-2, 4)
    (2, 3)
    """
    return tuple(range(axis % rank, rank))
