"""The geometry of ONNX's Conv, ConvTranspose and pools: kernel, strides, dilations, pads, ceil_mode.

    reach = (kernel - 1) * dilation + 1
    Conv, pools      out = (size + begin + end - reach) / stride + 1, rounded down, or up with ceil_mode
    ConvTranspose    full = (size - 1) * stride + reach, of which the pads are cut off

https://onnx.ai/onnx/operators/onnx__Conv.html, onnx__AveragePool.html, onnx__ConvTranspose.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array

RULES = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
"""What auto_pad may be."""


@dataclass(frozen=True)
class Window:
    """A window that slides over spatial axes; one entry per axis in each field.

    Attributes:
        out: Output sizes, as inferred from the model (this carries ceil_mode).
        stride: Distances between windows.
        dilation: Distances between the window's elements.
        begin: Padding before the input.
        declared_end: Padding after the input, as declared by the node.
    """

    size: tuple[int, ...]
    out: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    begin: tuple[int, ...]
    declared_end: tuple[int, ...]

    @property
    def reach(self) -> tuple[int, ...]:
        """Return the number of input elements that a window spans, from its first to its last element."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    @property
    def used_end(self) -> tuple[int, ...]:
        """Return the padding after the input that the last window reaches; negative if input is left over.

        With this padding, an output size that is rounded down equals the model's, also for ceil_mode.
        """
        return tuple(
            (o - 1) * s + r - n - b
            for o, s, r, n, b in zip(self.out, self.stride, self.reach, self.size, self.begin, strict=True)
        )

    @property
    def pads(self) -> tuple[tuple[int, int], ...]:
        """Return the padding (before, after) of each axis that windows touch."""
        return tuple((b, max(e, 0)) for b, e in zip(self.begin, self.used_end, strict=True))

    @property
    def is_dilated(self) -> bool:
        """Return whether a window's elements are not adjacent."""
        return any(d != 1 for d in self.dilation)


def window(
    size: Sequence[int],
    out: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    auto_pad: str,
    pads: Sequence[int] | None,
) -> Window:
    """Return the window of a Conv or pool node over an input of ``size``; other arguments are attributes.

    Raises:
        Inexpressible: a pad is negative, or the attributes do not fit the rank.
    """
    rank = len(size)
    stride, dilation = tuple(strides or (1,) * rank), tuple(dilations or (1,) * rank)
    padding = tuple(pads or (0,) * (2 * rank))
    if len(kernel) != rank or len(stride) != rank or len(dilation) != rank or len(padding) != 2 * rank:
        raise Inexpressible(f"kernel_shape, strides, dilations or pads do not fit {rank} spatial axes")
    if any(p < 0 for p in padding):
        raise Inexpressible(f"pads {list(padding)} are negative, which is not supported")
    if auto_pad not in RULES:
        raise Inexpressible(f"auto_pad {auto_pad} is not one of {', '.join(RULES)}")
    begin, end = list(padding[:rank]), list(padding[rank:])
    if auto_pad != "NOTSET":
        begin, end = [0] * rank, [0] * rank
    if auto_pad.startswith("SAME"):
        for axis in range(rank):
            reach = (kernel[axis] - 1) * dilation[axis] + 1
            total = max((out[axis] - 1) * stride[axis] + reach - size[axis], 0)
            begin[axis] = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
            end[axis] = total - begin[axis]
    return Window(tuple(size), tuple(out), tuple(kernel), stride, dilation, tuple(begin), tuple(end))


def conv_window(
    size: Sequence[int],
    out: Sequence[int],
    weights: Sequence[int],
    kernel_shape: Sequence[int] | None,
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    auto_pad: str,
    pads: Sequence[int] | None,
) -> Window:
    """Return the window of an ONNX Conv; ``weights`` are the spatial sizes of its weights."""
    if kernel_shape is not None and tuple(kernel_shape) != tuple(weights):
        raise Inexpressible(f"kernel_shape {list(kernel_shape)} does not match its weights {tuple(weights)}")
    return window(size, out, weights, strides, dilations, auto_pad, pads)


def divisors(frame: Window, count_include_pad: bool) -> Array:
    """Return the divisor of each window's sum in an AveragePool, float64, of shape ``frame.out``.

    ONNX counts the elements of the input, and with count_include_pad also the declared pads. It never counts
    what ceil_mode lets a window reach beyond them.
    """
    total: Array = np.ones(())
    for axis in range(len(frame.size)):
        low, high = 0, frame.size[axis]
        if count_include_pad:
            low, high = -frame.begin[axis], frame.size[axis] + frame.declared_end[axis]
        first = np.arange(frame.out[axis]) * frame.stride[axis] - frame.begin[axis]
        positions = first[:, None] + np.arange(frame.kernel[axis]) * frame.dilation[axis]
        total = total[..., None] * ((positions >= low) & (positions < high)).sum(axis=1)
    return total


@dataclass(frozen=True)
class TransposedWindow:
    """A ConvTranspose over spatial axes; one entry per axis in each field.

    Attributes:
        stride: Steps in the output from one input element to the next.
        dilation: Distances between the window's elements.
        full: Sizes of the result before any of it is cut off.
        begin: Number of elements of ``full`` cut off in front.
    """

    out: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    full: tuple[int, ...]
    begin: tuple[int, ...]

    @property
    def end(self) -> tuple[int, ...]:
        """Return how much of ``full`` is cut off at the end; negative if output_padding extends beyond it."""
        return tuple(f - b - o for f, b, o in zip(self.full, self.begin, self.out, strict=True))


def transposed_window(
    size: Sequence[int],
    out: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    auto_pad: str,
    pads: Sequence[int] | None,
    output_padding: Sequence[int] | None,
    output_shape: Sequence[int] | None,
) -> TransposedWindow:
    """Return the window of a ConvTranspose over an input of ``size``; other arguments are attributes.

    With output_shape or SAME, the specification splits the elements to cut off between both ends. The odd one
    is at the end for SAME_UPPER, in front otherwise.
    """
    rank = len(size)
    stride, dilation = tuple(strides or (1,) * rank), tuple(dilations or (1,) * rank)
    extra, padding = tuple(output_padding or (0,) * rank), tuple(pads or (0,) * (2 * rank))
    full = tuple(
        (n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(size, stride, kernel, dilation, strict=True)
    )
    begin = padding[:rank]
    if auto_pad != "NOTSET" or output_shape is not None:
        totals = [f + e - o for f, e, o in zip(full, extra, out, strict=True)]
        begin = tuple(t // 2 if auto_pad == "SAME_UPPER" else t - t // 2 for t in totals)
    return TransposedWindow(tuple(out), stride, dilation, full, begin)
