"""Things found in a frame, with their boxes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgekit.processing.predictions.label import corners_text, label_of, listed
from edgekit.processing.predictions.prediction import Prediction
from edgekit.tensor_spec import Array, Json

if TYPE_CHECKING:
    from edgekit.processing.drawing import Canvas


@dataclass(frozen=True)
class Detection:
    """One thing found: ``box`` is x1, y1, x2, y2 in the frame's pixels; landmarks are x, y pairs there."""

    index: int
    label: str
    score: float
    box: tuple[float, float, float, float]
    landmarks: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, eq=False, repr=False)
class Detections(Prediction):
    """Objects detected in a frame, best score first.

    Attributes:
        boxes: float32 [n, 4]: x1, y1, x2, y2 in the frame's pixels, within the frame.
        scores: float32 [n], 0 to 1.
        classes: int64 [n].
        labels: The card's labels by class number, or empty.
        landmarks: float32 [n, points, 2]: x, y in the frame's pixels; None if the model has no landmarks.
    """

    boxes: Array
    scores: Array
    classes: Array
    labels: Sequence[str] = ()
    landmarks: Array | None = None

    def __len__(self) -> int:
        return len(self.boxes)

    def __getitem__(self, index: int) -> Detection:
        class_index = int(self.classes[index])
        points: Any = self.landmarks[index].tolist() if self.landmarks is not None else ()
        x1, y1, x2, y2 = self.boxes[index].tolist()
        return Detection(
            class_index,
            label_of(self.labels, class_index),
            float(self.scores[index]),
            (x1, y1, x2, y2),
            tuple((x, y) for x, y in points),
        )

    def __iter__(self) -> Iterator[Detection]:
        return (self[index] for index in range(len(self)))

    def draw_on(self, canvas: Canvas) -> None:
        for detection in reversed(list(self)):  # the best one is on top
            colour = canvas.colour_of(detection.index)
            canvas.box(detection.box, colour)
            for point in detection.landmarks:
                canvas.dot(point, colour, canvas.line)
            canvas.label(f"{detection.label} {detection.score:.2f}", detection.box[:2], colour)

    def __str__(self) -> str:
        return listed((detection.label, detection.score, corners_text(detection.box)) for detection in self)

    def as_json(self) -> list[dict[str, Json]]:
        rows = []
        for one in self:
            entry: dict[str, Json] = {"index": one.index, "label": one.label, "score": round(one.score, 6)}
            entry["box"] = [round(value, 2) for value in one.box]
            if one.landmarks:
                entry["landmarks"] = [[round(x, 2), round(y, 2)] for x, y in one.landmarks]
            rows.append(entry)
        return rows
