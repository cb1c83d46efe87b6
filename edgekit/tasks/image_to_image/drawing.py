"""Images, drawn into an image."""

from __future__ import annotations

from edgekit.processing.drawing import Canvas
from edgekit.processing.predictions.image_to_image import Picture


def draw(prediction: Picture, canvas: Canvas) -> None:
    canvas.show(prediction.pixels)
