"""Boxes, drawn into an image."""

from __future__ import annotations

from edgekit.processing.drawing import Canvas, colour_of
from edgekit.processing.predictions.detect import Detections


def draw(prediction: Detections, canvas: Canvas) -> None:
    for detection in reversed(list(prediction)):  # the best one is on top
        colour = colour_of(detection.index)
        canvas.box(detection.box, colour)
        for point in detection.landmarks:
            canvas.dot(point, colour, canvas.line)
        canvas.label(f"{detection.label} {detection.score:.2f}", detection.box[:2], colour)
