"""Turned boxes, drawn into a picture."""

from __future__ import annotations

from edgekit.processing.drawing import Canvas, colour_of
from edgekit.processing.tasks.obb.prediction import OrientedDetections


def draw(prediction: OrientedDetections, canvas: Canvas) -> None:
    for found in reversed(list(prediction)):
        canvas.polygon(found.corners, colour_of(found.index))
        top = min(found.corners, key=lambda corner: corner[1])
        canvas.label(f"{found.label} {found.score:.2f}", top, colour_of(found.index))
