"""A count, drawn into a picture."""

from __future__ import annotations

import numpy as np

from edgekit.processing.drawing import Canvas, colour_of
from edgekit_count.prediction import Count


def draw(prediction: Count, canvas: Canvas) -> None:
    """The crowded cells tinted, and the number."""
    width, height = canvas.image.size
    rows, columns = prediction.density.shape
    cells = np.ix_(np.arange(height) * rows // height, np.arange(width) * columns // width)
    densest = max(float(prediction.density.max(initial=0)), 1e-9)
    canvas.cover(prediction.density[cells] / densest, colour_of(0))
    canvas.text(str(prediction), (0, 0), colour_of(0))
