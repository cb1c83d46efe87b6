"""Boxes, drawn into a picture."""

from __future__ import annotations

from edgekit.processing.drawing import Canvas, colour_of
from edgekit.processing.tasks.detect.prediction import Detections


def draw(prediction: Detections, canvas: Canvas) -> None:
    for found in reversed(list(prediction)):  # the best one is on top
        colour = colour_of(found.index)
        canvas.box(found.box, colour)
        for point in found.landmarks:
            canvas.dot(point, colour, canvas.line)
        canvas.label(f"{found.label} {found.score:.2f}", found.box[:2], colour)
