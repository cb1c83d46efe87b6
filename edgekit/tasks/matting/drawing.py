"""Mattes, drawn into an image."""

from __future__ import annotations

import numpy as np

from edgekit.processing.drawing import Canvas
from edgekit.processing.predictions.matting import Matte

GREEN = (0, 177, 64)
"""Behind the foreground of a matte: the green of studios."""


def draw(prediction: Matte, canvas: Canvas) -> None:
    """Draw the foreground alone, on a green background."""
    canvas.show(prediction.over(np.asarray(canvas.image), np.array(GREEN, np.float32)))
