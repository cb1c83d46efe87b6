"""Regions of text, drawn into an image."""

from __future__ import annotations

from edgekit.processing.drawing import Canvas, colour_of
from edgekit.processing.predictions.detect_text import TextRegions


def draw(prediction: TextRegions, canvas: Canvas) -> None:
    for number, region in enumerate(prediction):
        canvas.polygon(region.corners, colour_of(number))
        canvas.label(str(number + 1), region.corners[0], colour_of(number))
