"""Keypoints, drawn into a picture."""

from __future__ import annotations

from edgekit.processing.drawing import Canvas, colour_of
from edgekit.processing.tasks.pose.prediction import VISIBLE_SCORE, Keypoints


def draw(prediction: Keypoints, canvas: Canvas) -> None:
    for number, found in enumerate(prediction):
        colour = colour_of(number)
        seen = [score >= VISIBLE_SCORE for score in found.point_scores] or [True] * len(found.points)
        for a, b in prediction.skeleton:
            if seen[a] and seen[b]:
                canvas.path([found.points[a], found.points[b]], colour)
        # A mesh of hundreds of points is drawn with small ones.
        radius = canvas.line * (1.5 if len(found.points) < 100 else 0.5)
        for point, visible in zip(found.points, seen, strict=True):
            if visible:
                canvas.dot(point, colour, radius)
        if found.box is not None:
            canvas.box(found.box, colour)
        corner = found.box[:2] if found.box is not None else min(found.points, key=lambda p: p[1])
        canvas.label(f"{found.label} {found.score:.2f}", corner, colour)
