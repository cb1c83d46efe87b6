"""A small signature of a frame, and the distance of two: the greatest change of any block's mean.

About 65,000 values are read, whatever the frame's size. Neighbouring samples are of different colour
channels, so that every block covers all three at the cost of one.
"""

from __future__ import annotations

import numpy as np

from edgekit.errors import UsageError
from edgekit.tensor_spec import Array

SAMPLES = 65536
BLOCK = 8
"""Samples along each side of a block; a frame of 640 x 480 has 30 x 30 blocks of 21 x 16 pixels."""


def signature_of(frame: Array) -> Array:
    """Return the means of a frame's blocks.

    Args:
        frame: uint8 [rows, columns, 3].

    Returns:
        float32 [block rows, block columns], 0 to 255.

    Raises:
        UsageError: it is not such an array, or smaller than 24 x 8 pixels.
    """
    if not isinstance(frame, np.ndarray) or frame.dtype != np.uint8 or frame.shape[2:] != (3,):
        shown = (
            f"{frame.dtype} {list(frame.shape)}" if isinstance(frame, np.ndarray) else type(frame).__name__
        )
        raise UsageError(f"a frame is uint8 [rows, columns, 3], not {shown}")
    rows, columns = frame.shape[:2]
    step = max(1, round((rows * columns / SAMPLES) ** 0.5))
    flat = np.ascontiguousarray(frame).reshape(rows, columns * 3)[::step, :: 3 * step + 1]
    high, wide = flat.shape[0] // BLOCK, flat.shape[1] // BLOCK
    if not high or not wide:
        raise UsageError(f"a frame of {columns} x {rows} pixels has no blocks to compare")
    fitting = flat[: high * BLOCK, : wide * BLOCK].reshape(high, BLOCK, wide * BLOCK)
    sums = np.add.reduce(fitting, axis=1, dtype=np.uint16).reshape(high, wide, BLOCK)
    means: Array = np.add.reduce(sums, axis=2, dtype=np.uint16) / np.float32(BLOCK * BLOCK)
    return means


def frame_distances(signatures: Array, signature: Array) -> Array:
    """Return the distances of signatures [n, rows, columns] from another one, in levels of 0 to 255."""
    distances: Array = np.abs(signatures - signature).max(axis=(1, 2))
    return distances
