"""Decoding of ONNX's Pad: elements added to and removed from each axis, and the source of added elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from edgekit.compiler.lowering.index_arguments import NodeInput, constant_ints
from edgekit.diagnostics import Inexpressible

MODES = ("constant", "reflect", "edge", "wrap")


class PadAmounts(NamedTuple):
    """Effect of a Pad, one entry per axis: it keeps ``shape`` elements from ``begin`` on, then adds others.

    Attributes:
        begin: First element that is kept; above 0 for negative pads.
        added: Numbers of elements added (before, after), both non-negative.
    """

    begin: tuple[int, ...]
    shape: tuple[int, ...]
    added: tuple[tuple[int, int], ...]

    @property
    def adds(self) -> bool:
        return any(before or after for before, after in self.added)

    @property
    def out_shape(self) -> tuple[int, ...]:
        return tuple(n + before + after for n, (before, after) in zip(self.shape, self.added, strict=True))


@dataclass(frozen=True)
class PadPart:
    """Elements of the input that Pad repeats beyond an end of an axis.

    Attributes:
        count, times: Number of elements, and of their repetitions; either may be 0.
        is_reversed: Whether the elements are in reverse order.
    """

    begin: int
    count: int
    times: int = 1
    is_reversed: bool = False


def pad_amounts(
    data_shape: Sequence[int], pads: NodeInput, axes: NodeInput | None = None, mode: str = "constant"
) -> PadAmounts:
    """Decode a Pad. The arguments are the node's inputs and its mode.

    Raises:
        Inexpressible: the model computes pads or axes, ``mode`` is not one of ONNX's, or the mode needs more
            elements than the axis has.
    """
    if mode not in MODES:
        raise Inexpressible(f"mode {mode!r} is not one of {', '.join(MODES)}")
    rank = len(data_shape)
    amounts = constant_ints(pads, "pads")
    padded_axes = tuple(range(rank)) if axes is None else constant_ints(axes, "axes")
    both = [(0, 0)] * rank
    for index, axis in enumerate(padded_axes):
        both[axis % rank] = (amounts[index], amounts[index + len(padded_axes)])
    begin = tuple(max(-before, 0) for before, _ in both)
    shape = tuple(n + min(pair[0], 0) + min(pair[1], 0) for n, pair in zip(data_shape, both, strict=True))
    added = tuple((max(before, 0), max(after, 0)) for before, after in both)
    spare = {"reflect": 1, "wrap": 0}
    for n, pair in zip(shape, added, strict=True):
        if mode in spare and any(pair) and max(pair) > n - spare[mode]:
            raise Inexpressible(
                f"mode {mode} adds {pair} to an axis of {n}, which has fewer elements to repeat"
            )
    return PadAmounts(begin, shape, added)


def pad_parts(mode: str, size: int, before: int, after: int) -> tuple[PadPart, PadPart]:
    """Return the elements that a mode other than constant puts before and after an axis of ``size`` elements.

    >>> pad_parts("reflect", 5, 2, 1)[0]
    PadPart(begin=1, count=2, times=1, is_reversed=True)
    """
    if mode == "edge":
        return PadPart(0, 1, before), PadPart(size - 1, 1, after)
    if mode == "wrap":
        return PadPart(size - before, before), PadPart(0, after)
    return PadPart(1, before, is_reversed=True), PadPart(size - 1 - after, after, is_reversed=True)
