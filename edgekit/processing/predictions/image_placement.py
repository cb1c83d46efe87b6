"""Placement of a frame within the model's input."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgekit.tensor_spec import Array


@dataclass(frozen=True)
class ImagePlacement:
    """Placement of a frame in the model's input: input = frame x scale + offset, along each axis.

    Coordinates are continuous: 0 is the left or top edge of the first pixel.
    """

    frame_width: int
    frame_height: int
    input_width: int
    input_height: int
    scale_x: float = 1.0
    scale_y: float = 1.0
    offset_x: float = 0.0
    offset_y: float = 0.0

    def to_frame(self, points: Array) -> Array:
        """Map points of the input [..., 2 or 4 ...] to x, y, x, y ... in frame pixels, clipped to the frame.

        >>> placed = ImagePlacement(100, 50, 50, 25, 0.5, 0.5)
        >>> placed.to_frame(np.array([[10.0, 10.0, 60.0, 20.0]])).tolist()
        [[20.0, 20.0, 100.0, 40.0]]
        """
        pairs = points.reshape(*points.shape[:-1], points.shape[-1] // 2, 2)
        offset = np.array([self.offset_x, self.offset_y], np.float32)
        scale = np.array([self.scale_x, self.scale_y], np.float32)
        size = np.array([self.frame_width, self.frame_height], np.float32)
        placed: Array = np.clip((pairs - offset) / scale, 0, size).reshape(points.shape)
        return placed
