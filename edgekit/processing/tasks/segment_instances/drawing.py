"""Masks with their boxes, drawn into a picture."""

from __future__ import annotations

from edgekit.processing.drawing import Canvas, colour_of
from edgekit.processing.tasks.segment_instances.prediction import Instances


def draw(prediction: Instances, canvas: Canvas) -> None:
    for number, found in reversed(list(enumerate(prediction))):
        canvas.cover(found.mask, colour_of(number), (found.left, found.top))
    for number, found in reversed(list(enumerate(prediction))):
        canvas.box(found.box, colour_of(number))
        canvas.label(f"{found.label} {found.score:.2f}", found.box[:2], colour_of(number))
