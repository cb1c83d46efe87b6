"""The class of each pixel of a frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from edgekit.processing.predictions.label import label_of
from edgekit.processing.predictions.prediction import Prediction
from edgekit.tensor_spec import Array, Json

if TYPE_CHECKING:
    from edgekit.processing.drawing import Canvas

SHOWN = 0.001
"""Minimum share of the pixels for a class to be listed in text."""
BACKGROUND = ("background", "__background__", "_background_")
"""Labels of a class that is not tinted in a drawing."""


@dataclass(frozen=True, eq=False, repr=False)
class ClassMap(Prediction):
    """The class of each pixel.

    Attributes:
        classes: uint8, or int32 with more than 256 classes: [height, width] of the frame.
        labels: The card's labels by class number, or empty.
    """

    classes: Array
    labels: Sequence[str] = ()

    def mask(self, index: int) -> Array:
        """Return the mask of a class: bool [height, width]."""
        class_mask: Array = self.classes == index
        return class_mask

    def shares(self) -> dict[int, float]:
        """Return the share of the pixels by class number, largest first, without absent classes."""
        counts = np.bincount(self.classes.reshape(-1))
        order = np.argsort(-counts, kind="stable")
        return {int(index): float(counts[index] / self.classes.size) for index in order if counts[index]}

    def draw_on(self, canvas: Canvas) -> None:
        """Tint each class, and show its share of the pixels. The background is not tinted."""
        rows = 0
        for index, share in self.shares().items():
            label = label_of(self.labels, index)
            if share < SHOWN or label.lower() in BACKGROUND:
                continue
            canvas.cover(self.mask(index), canvas.colour_of(index))
            corner = (0, rows * (canvas.text_height + 1))
            canvas.text(f"{label} {share:.1%}", corner, canvas.colour_of(index))
            rows += 1

    def __str__(self) -> str:
        shares = [(label_of(self.labels, i), share) for i, share in self.shares().items() if share >= SHOWN]
        width = max(len(label) for label, _ in shares)
        return "\n".join(f"{label:{width}}  {share:6.1%}" for label, share in shares)

    def as_json(self) -> dict[str, Json]:
        height, width = self.classes.shape
        classes = [
            {"index": index, "label": label_of(self.labels, index), "share": round(share, 6)}
            for index, share in self.shares().items()
        ]
        return {"width": width, "height": height, "classes": classes}
