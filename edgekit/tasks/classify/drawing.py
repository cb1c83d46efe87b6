"""Classes, drawn into an image."""

from __future__ import annotations

from edgekit.processing.drawing import Canvas, colour_of
from edgekit.processing.predictions.classify import Classes


def draw(prediction: Classes, canvas: Canvas) -> None:
    for row, entry in enumerate(prediction):
        canvas.text(f"{entry.label} {entry.score:.2f}", (0, row * (canvas.text_height + 1)), colour_of(row))
