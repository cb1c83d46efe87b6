"""Windows: ONNX's explicit pads -> what TFLite has: SAME, VALID, or a PAD before VALID; and resampling.

SAME    out = ceil(in / stride), total = max((out - 1) * stride + reach - in, 0), begin = total // 2
VALID   out = (in - reach) // stride + 1, nothing is padded
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edgekit.compiler.model.resize_matrix import ResizeAxis
from edgekit.compiler.model.sliding_windows import Window
from edgekit.tensor_spec import Array


def padding_scheme(frame: Window) -> str:
    """``SAME`` or ``VALID`` if TFLite's own rule gives just these pads, else ``EXPLICIT``.

    >>> padding_scheme(Window((224,), (112,), (3,), (2,), (1,), (1,), (1,)))
    'EXPLICIT'
    >>> padding_scheme(Window((224,), (112,), (3,), (2,), (1,), (0,), (1,)))
    'SAME'
    """
    if all(b == 0 for b in frame.begin) and all(e <= 0 for e in frame.used_end):
        return "VALID"
    total = [max(b + e, 0) for b, e in zip(frame.begin, frame.used_end, strict=True)]
    same_out = all(o == -(-n // s) for o, n, s in zip(frame.out, frame.size, frame.stride, strict=True))
    same_begin = all(b == t // 2 for b, t in zip(frame.begin, total, strict=True))
    return "SAME" if same_out and same_begin else "EXPLICIT"


def with_height(frame: Window) -> Window:
    """Return the same window over one row, which makes a 1-D operator a 2-D one."""
    return Window(
        (1, *frame.size),
        (1, *frame.out),
        (1, *frame.kernel),
        (1, *frame.stride),
        (1, *frame.dilation),
        (0, *frame.begin),
        (0, *frame.declared_end),
    )


def bilinear_options(lines: Sequence[ResizeAxis]) -> tuple[bool, bool] | None:
    """half_pixel_centers and align_corners of the RESIZE_BILINEAR that reads the same positions, or None.

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
    for options, points in modes.items():
        # Below zero the kernels take the first element, whatever the distance is.
        if all(
            line.is_identity
            or np.allclose(
                np.maximum(points(line.size, line.out), 0), np.maximum(line.coordinates, 0), atol=1e-9
            )
            for line in lines
        ):
            return options
    return None
