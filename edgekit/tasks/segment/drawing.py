"""Class maps, drawn into an image."""

from __future__ import annotations

from edgekit.processing.drawing import Canvas, colour_of
from edgekit.processing.predictions.label import label_of
from edgekit.processing.predictions.segment import SHOWN, ClassMap

BACKGROUND = ("background", "__background__", "_background_")
"""Labels of a class that is not tinted."""


def draw(prediction: ClassMap, canvas: Canvas) -> None:
    """Tint each class, and show its share of the pixels. The background is not tinted."""
    rows = 0
    for index, share in prediction.shares().items():
        label = label_of(prediction.labels, index)
        if share < SHOWN or label.lower() in BACKGROUND:
            continue
        canvas.cover(prediction.mask(index), colour_of(index))
        canvas.text(f"{label} {share:.1%}", (0, rows * (canvas.text_height + 1)), colour_of(index))
        rows += 1
