"""Masks with their boxes, drawn into an image."""

from __future__ import annotations

from edgekit.processing.drawing import Canvas, colour_of
from edgekit.processing.predictions.segment_instances import Instances


def draw(prediction: Instances, canvas: Canvas) -> None:
    for number, instance in reversed(list(enumerate(prediction))):
        canvas.cover(instance.mask, colour_of(number), (instance.left, instance.top))
    for number, instance in reversed(list(enumerate(prediction))):
        canvas.box(instance.box, colour_of(number))
        canvas.label(f"{instance.label} {instance.score:.2f}", instance.box[:2], colour_of(number))
