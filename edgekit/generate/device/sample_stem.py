"""Sizes of the convolutions that an encoder of samples begins with (Moonshine)."""

from __future__ import annotations

STEM = ((127, 64), (7, 3), (3, 2))
"""Kernel sizes and strides."""
LEAST_SAMPLES = 895
"""Samples of the first position; a shorter sound is followed by zeros."""


def stem_sizes(samples: int) -> list[int]:
    """Return the number of frames after each convolution; the last one is that of positions.

    >>> stem_sizes(895), stem_sizes(16000)
    ([13, 3, 1], [249, 81, 40])
    """
    sizes = []
    for size, stride in STEM:
        samples = (samples - size) // stride + 1
        sizes.append(samples)
    return sizes
