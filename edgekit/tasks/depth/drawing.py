"""Depth, drawn into an image."""

from __future__ import annotations

from edgekit.processing.drawing import Canvas, colour_of
from edgekit.processing.predictions.depth import DepthMap


def draw(prediction: DepthMap, canvas: Canvas) -> None:
    """Draw the depth map alone. Near is bright."""
    canvas.show(prediction.picture())
    for row, line in enumerate(str(prediction).splitlines()):
        canvas.text(" ".join(line.split()), (0, row * (canvas.text_height + 1)), colour_of(row))
