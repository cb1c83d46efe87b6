"""Things found in a frame, with their oriented boxes (OBB)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from edgekit.processing.predictions.label import label_of, listed
from edgekit.processing.predictions.prediction import Prediction
from edgekit.tensor_spec import Array, Json

if TYPE_CHECKING:
    from edgekit.processing.drawing import Canvas


@dataclass(frozen=True)
class OrientedDetection:
    """One thing found: ``box`` is centre x, centre y, width, height in the frame's pixels and the angle in
    radians by which the width is turned from the x axis towards the y axis (clockwise on a screen)."""

    index: int
    label: str
    score: float
    box: tuple[float, float, float, float, float]
    corners: tuple[tuple[float, float], ...]


@dataclass(frozen=True, eq=False, repr=False)
class OrientedDetections(Prediction):
    """Oriented objects detected in a frame, best score first.

    Attributes:
        boxes: float32 [n, 5]: centre x, centre y, width, height in the frame's pixels; the angle in radians
            by which the width is turned from the x axis towards the y axis (clockwise on a screen). A box may
            reach beyond the frame.
        scores: float32 [n], 0 to 1.
        classes: int64 [n].
        labels: The card's labels by class number; empty if it has none.
    """

    boxes: Array
    scores: Array
    classes: Array
    labels: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.boxes)

    def __getitem__(self, index: int) -> OrientedDetection:
        class_index = int(self.classes[index])
        x, y, width, height, angle = self.boxes[index].tolist()
        return OrientedDetection(
            class_index,
            label_of(self.labels, class_index),
            float(self.scores[index]),
            (x, y, width, height, angle),
            tuple((x, y) for x, y in self.corners[index].tolist()),
        )

    def __iter__(self) -> Iterator[OrientedDetection]:
        return (self[index] for index in range(len(self)))

    @property
    def corners(self) -> Array:
        """float32 [n, 4, 2]: x, y of each corner in the frame's pixels, in their order around the box."""
        cosine, sine = np.cos(self.boxes[:, 4]), np.sin(self.boxes[:, 4])
        along = np.stack([cosine, sine], axis=1) * (self.boxes[:, 2:3] / 2)
        down = np.stack([-sine, cosine], axis=1) * (self.boxes[:, 3:4] / 2)
        around = [-along - down, along - down, along + down, -along + down]
        corners: Array = self.boxes[:, None, :2] + np.stack(around, axis=1)
        return corners

    def draw_on(self, canvas: Canvas) -> None:
        for detection in reversed(list(self)):
            colour = canvas.colour_of(detection.index)
            canvas.polygon(detection.corners, colour)
            top = min(detection.corners, key=lambda corner: corner[1])
            canvas.label(f"{detection.label} {detection.score:.2f}", top, colour)

    def __str__(self) -> str:
        return listed((detection.label, detection.score, _position_text(detection)) for detection in self)

    def as_json(self) -> list[dict[str, Json]]:
        """``box``: centre x, centre y, width, height, angle in radians; ``corners``: four of x, y."""
        rows = []
        for one in self:
            entry: dict[str, Json] = {"index": one.index, "label": one.label, "score": round(one.score, 6)}
            entry["box"] = [*(round(value, 2) for value in one.box[:4]), round(one.box[4], 5)]
            entry["corners"] = [[round(x, 2), round(y, 2)] for x, y in one.corners]
            rows.append(entry)
        return rows


def _position_text(detection: OrientedDetection) -> str:
    x, y, wide, high, angle = detection.box
    return f"{wide:.0f}x{high:.0f} at {x:.0f},{y:.0f} turned by {math.degrees(angle):.0f} degrees"
