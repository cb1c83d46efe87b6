"""Windows: ONNX's explicit pads -> what TFLite has: SAME, VALID, or a PAD before VALID; and resampling.

SAME    out = ceil(in / stride), total = max((out - 1) * stride + reach - in, 0), begin = total // 2
VALID   out = (in - reach) // stride + 1, nothing is padded
reach = (kernel - 1) * dilation + 1
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.findings import Inexpressible
from edgekit.model.resize_matrix import Line
from edgekit.tensors import Array


@dataclass(frozen=True)
class Window:
    """A window that slides over spatial axes; one entry per axis in each field.

    Attributes:
        size: Input sizes.
        out: Output sizes, as inferred from the model (this carries ceil_mode).
        kernel: Window sizes.
        stride: Steps.
        dilation: Distances between the window's elements.
        begin: Padding before the input.
    """

    size: tuple[int, ...]
    out: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    begin: tuple[int, ...]

    @property
    def reach(self) -> tuple[int, ...]:
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    @property
    def used_end(self) -> tuple[int, ...]:
        """Padding behind the input that windows really touch; negative where input is left over."""
        return tuple(
            (o - 1) * s + r - n - b
            for o, s, r, n, b in zip(self.out, self.stride, self.reach, self.size, self.begin, strict=True)
        )

    @property
    def padding(self) -> str:
        """``SAME`` or ``VALID`` where TFLite's own rule gives just these pads, else ``EXPLICIT``.

        >>> Window((224,), (112,), (3,), (2,), (1,), (1,)).padding
        'EXPLICIT'
        >>> Window((224,), (112,), (3,), (2,), (1,), (0,)).padding
        'SAME'
        """
        if all(b == 0 for b in self.begin) and all(e <= 0 for e in self.used_end):
            return "VALID"
        total = [max(b + e, 0) for b, e in zip(self.begin, self.used_end, strict=True)]
        same_out = all(o == -(-n // s) for o, n, s in zip(self.out, self.size, self.stride, strict=True))
        same_begin = all(b == t // 2 for b, t in zip(self.begin, total, strict=True))
        return "SAME" if same_out and same_begin else "EXPLICIT"

    @property
    def with_height(self) -> Window:
        """The same window over one row: how a 1-D operator becomes a 2-D one."""
        return Window(
            (1, *self.size),
            (1, *self.out),
            (1, *self.kernel),
            (1, *self.stride),
            (1, *self.dilation),
            (0, *self.begin),
        )

    @property
    def pads(self) -> tuple[tuple[int, int], ...]:
        """(before, behind) for each axis, as much as windows touch."""
        return tuple((b, max(e, 0)) for b, e in zip(self.begin, self.used_end, strict=True))


def window(
    size: Sequence[int],
    out: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    auto_pad: str,
    pads: Sequence[int] | None,
) -> Window:
    """The window of an ONNX Conv or pool node; the arguments are its attributes.

    Raises:
        Inexpressible: a pad is negative, or the attributes do not fit the rank.
    """
    rank = len(size)
    stride = tuple(strides or (1,) * rank)
    dilation = tuple(dilations or (1,) * rank)
    given = tuple(pads or (0,) * (2 * rank))
    if len(kernel) != rank or len(stride) != rank or len(dilation) != rank or len(given) != 2 * rank:
        raise Inexpressible(f"kernel_shape, strides, dilations or pads do not fit {rank} spatial axes")
    if any(p < 0 for p in given):
        raise Inexpressible(f"pads {list(given)} are negative")
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        begin = []
        for n, o, k, s, d in zip(size, out, kernel, stride, dilation, strict=True):
            total = max((o - 1) * s + (k - 1) * d + 1 - n, 0)
            begin.append(total // 2 if auto_pad == "SAME_UPPER" else total - total // 2)
    elif auto_pad == "VALID":
        begin = [0] * rank
    elif auto_pad == "NOTSET":
        begin = list(given[:rank])
    else:
        raise Inexpressible(f"auto_pad {auto_pad} is not one of NOTSET, SAME_UPPER, SAME_LOWER, VALID")
    return Window(tuple(size), tuple(out), tuple(kernel), stride, dilation, tuple(begin))


def divisors(frame: Window, behind: Sequence[int], count_include_pad: bool) -> Array:
    """How many elements each window's sum is divided by, float64, shape = frame.out.

    ONNX counts what lies inside the input, and with count_include_pad also the declared pads, but never what
    ceil_mode lets a window reach beyond them.
    """
    total: Array = np.ones(())
    for axis in range(len(frame.size)):
        low, high = 0, frame.size[axis]
        if count_include_pad:
            low, high = -frame.begin[axis], frame.size[axis] + behind[axis]
        first = np.arange(frame.out[axis]) * frame.stride[axis] - frame.begin[axis]
        at = first[:, None] + np.arange(frame.kernel[axis]) * frame.dilation[axis]
        total = total[..., None] * ((at >= low) & (at < high)).sum(axis=1)
    return total


def average_window(
    size: Sequence[int],
    out: Sequence[int],
    *,
    kernel_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    auto_pad: str = "NOTSET",
    pads: Sequence[int] | None = None,
    count_include_pad: int = 0,
    ceil_mode: int = 0,
) -> tuple[Window, Array]:
    """The window of an AveragePool, one over a single axis as one over two, and its ``divisors``.

    Args:
        size: Input sizes.
        out: Output sizes, which carry ceil_mode.
        kernel_shape: And the rest: attributes of the node.
    """
    frame = window(size, out, kernel_shape, strides, dilations, auto_pad, pads)
    behind = tuple(pads or (0,) * (2 * len(size)))[len(size) :]
    if auto_pad != "NOTSET":
        behind = tuple(max(e, 0) for e in frame.used_end)
    if len(size) == 1:
        frame, behind = frame.with_height, (0, *behind)
    return frame, divisors(frame, behind, bool(count_include_pad))


def bilinear_options(lines: Sequence[Line]) -> tuple[bool, bool] | None:
    """half_pixel_centers and align_corners of the RESIZE_BILINEAR that takes the same places, or None.

    Args:
        lines: For N, C and one or two spatial axes: where the outputs of each axis come from.
    """
    if len(lines) not in (3, 4) or not all(line.is_identity for line in lines[:2]):
        return None
    modes: dict[tuple[bool, bool], Callable[[int, int], Array]] = {
        (False, False): lambda n, m: np.arange(m) * (n / m),
        (True, False): lambda n, m: (np.arange(m) + 0.5) * (n / m) - 0.5,
        (False, True): lambda n, m: np.arange(m) * ((n - 1) / max(m - 1, 1)),
    }
    for options, where in modes.items():
        # Below zero the kernels take the first element, whatever the distance is.
        if all(
            line.is_identity
            or np.allclose(np.maximum(where(line.size, line.out), 0), np.maximum(line.at, 0), atol=1e-9)
            for line in lines
        ):
            return options
    return None
