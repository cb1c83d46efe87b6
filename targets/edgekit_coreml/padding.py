"""ONNX's pads as Core ML takes them: in front and behind for each axis, as far as windows reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edgekit.findings import Inexpressible


@dataclass(frozen=True)
class Window:
    """A window that slides over spatial axes; one entry per axis in each field.

    Attributes:
        kernel: Window sizes.
        stride: Steps.
        dilation: Distances between the window's elements.
        begin: Padding in front.
        end: Padding behind. With ceil_mode as far as the last window reaches, so that rounding the output's
            size down gives the model's; negative where the last window ends before the input does.
        declared_end: Padding behind that the node states.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]
    declared_end: tuple[int, ...]


def window(
    size: Sequence[int],
    out: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    auto_pad: str,
    pads: Sequence[int] | None,
) -> Window:
    """The window of an ONNX Conv or pool node over an input of ``size``; the others are its attributes.

    Raises:
        Inexpressible: a pad is negative, or the attributes do not fit the rank.
    """
    rank = len(size)
    stride, dilation = tuple(strides or (1,) * rank), tuple(dilations or (1,) * rank)
    given = tuple(pads or (0,) * (2 * rank))
    if len(kernel) != rank or len(stride) != rank or len(dilation) != rank or len(given) != 2 * rank:
        raise Inexpressible(f"kernel_shape, strides, dilations or pads do not fit {rank} spatial axes")
    if any(p < 0 for p in given):
        raise Inexpressible(f"pads {list(given)} are negative")
    if auto_pad not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise Inexpressible(f"auto_pad {auto_pad} is not one of NOTSET, SAME_UPPER, SAME_LOWER, VALID")
    begin, end, declared = [], [], []
    for axis in range(rank):
        reach = (kernel[axis] - 1) * dilation[axis] + 1
        total = (out[axis] - 1) * stride[axis] + reach - size[axis]
        before, behind = given[axis], given[rank + axis]
        if auto_pad.startswith("SAME"):
            half = max(total, 0) // 2
            before = half if auto_pad == "SAME_UPPER" else max(total, 0) - half
            behind = max(total, 0) - before
        elif auto_pad == "VALID":
            before = behind = 0
        begin.append(before)
        end.append(total - before)
        declared.append(behind)
    return Window(tuple(kernel), stride, dilation, tuple(begin), tuple(end), tuple(declared))


def interleaved(frame: Window) -> dict[str, Any]:
    """The arguments ``pad_type`` and ``pad`` of a conv or pool."""
    behind = [max(e, 0) for e in frame.end]
    pad = [n for both in zip(frame.begin, behind, strict=True) for n in both]
    return {"pad_type": "custom", "pad": pad} if any(pad) else {"pad_type": "valid"}
