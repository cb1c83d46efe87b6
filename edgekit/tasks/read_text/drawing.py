"""Text, drawn into an image."""

from __future__ import annotations

from edgekit.processing.drawing import Canvas, colour_of
from edgekit.processing.predictions.read_text import TextLine


def draw(prediction: TextLine, canvas: Canvas) -> None:
    canvas.text(f"{prediction.text} {prediction.score:.2f}", (0, 0), colour_of(0))
