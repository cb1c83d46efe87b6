"""Keypoints, drawn into an image."""

from __future__ import annotations

from edgekit.processing.drawing import Canvas, colour_of
from edgekit.processing.predictions.pose import VISIBLE_SCORE, Keypoints


def draw(prediction: Keypoints, canvas: Canvas) -> None:
    for number, instance in enumerate(prediction):
        colour = colour_of(number)
        shown = [score >= VISIBLE_SCORE for score in instance.point_scores] or [True] * len(instance.points)
        for a, b in prediction.skeleton:
            if shown[a] and shown[b]:
                canvas.path([instance.points[a], instance.points[b]], colour)
        # A mesh of hundreds of points is drawn with small ones.
        radius = canvas.line * (1.5 if len(instance.points) < 100 else 0.5)
        for point, visible in zip(instance.points, shown, strict=True):
            if visible:
                canvas.dot(point, colour, radius)
        if instance.box is not None:
            canvas.box(instance.box, colour)
        corner = instance.box[:2] if instance.box is not None else min(instance.points, key=lambda p: p[1])
        canvas.label(f"{instance.label} {instance.score:.2f}", corner, colour)
