"""Turned boxes, drawn into an image."""

from __future__ import annotations

from edgekit.processing.drawing import Canvas, colour_of
from edgekit.processing.predictions.obb import OrientedDetections


def draw(prediction: OrientedDetections, canvas: Canvas) -> None:
    for detection in reversed(list(prediction)):
        canvas.polygon(detection.corners, colour_of(detection.index))
        top = min(detection.corners, key=lambda corner: corner[1])
        canvas.label(f"{detection.label} {detection.score:.2f}", top, colour_of(detection.index))
