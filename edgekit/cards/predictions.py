"""What a task answers, and where a frame lies within the model's input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgekit.tensors import Array, Json


@dataclass(frozen=True)
class ImagePlacement:
    """How a frame was placed in the model's input: input = frame x scale + offset, along each axis.

    Coordinates are continuous: 0 is the left or top edge of the first pixel.
    """

    frame_width: int
    frame_height: int
    input_width: int
    input_height: int
    scale_x: float = 1.0
    scale_y: float = 1.0
    offset_x: float = 0.0
    offset_y: float = 0.0

    def to_frame(self, points: Array) -> Array:
        """Points of the input [..., 2 or 4 ...] as x, y, x, y ... in the frame's pixels, kept within it.

        >>> placed = ImagePlacement(100, 50, 50, 25, 0.5, 0.5)
        >>> placed.to_frame(np.array([[10.0, 10.0, 60.0, 20.0]])).tolist()
        [[20.0, 20.0, 100.0, 40.0]]
        """
        pairs = points.reshape(*points.shape[:-1], points.shape[-1] // 2, 2)
        offset = np.array([self.offset_x, self.offset_y], np.float32)
        scale = np.array([self.scale_x, self.scale_y], np.float32)
        size = np.array([self.frame_width, self.frame_height], np.float32)
        placed: Array = np.clip((pairs - offset) / scale, 0, size).reshape(points.shape)
        return placed


@dataclass(frozen=True)
class Class:
    """One class of an answer: its number, its name (the number where the card has no labels), its score."""

    index: int
    label: str
    score: float


@dataclass(frozen=True, eq=False)
class Classes:
    """The best classes of a picture, best first.

    Attributes:
        indices: int64 [k].
        scores: float32 [k], 0 to 1.
        labels: The card's labels by class number; empty where it has none.
    """

    indices: Array
    scores: Array
    labels: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Class:
        class_index = int(self.indices[index])
        return Class(class_index, label_of(self.labels, class_index), float(self.scores[index]))

    def __iter__(self) -> Iterator[Class]:
        return (self[index] for index in range(len(self)))

    def __str__(self) -> str:
        width = max((len(found.label) for found in self), default=0)
        return "\n".join(f"{found.label:{width}}  {found.score:.3f}" for found in self)

    def as_json(self) -> list[dict[str, Json]]:
        return [{"index": f.index, "label": f.label, "score": round(f.score, 6)} for f in self]


@dataclass(frozen=True)
class Detection:
    """One thing found: ``box`` is x1, y1, x2, y2 in the frame's pixels; landmarks are x, y pairs there."""

    index: int
    label: str
    score: float
    box: tuple[float, float, float, float]
    landmarks: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, eq=False)
class Detections:
    """What was found in a frame, best score first.

    Attributes:
        boxes: float32 [n, 4]: x1, y1, x2, y2 in the frame's pixels, within the frame.
        scores: float32 [n], 0 to 1.
        classes: int64 [n].
        labels: The card's labels by class number; empty where it has none.
        landmarks: float32 [n, points, 2]: x, y in the frame's pixels; None where the model finds none.
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

    def __str__(self) -> str:
        if not len(self):
            return "nothing found"
        width = max(len(found.label) for found in self)
        lines = []
        for found in self:
            x1, y1, x2, y2 = found.box
            box = f"{x1:.0f},{y1:.0f} to {x2:.0f},{y2:.0f}"
            lines.append(f"{found.label:{width}}  {found.score:.3f}  {box}")
        return "\n".join(lines)

    def as_json(self) -> list[dict[str, Json]]:
        found = []
        for one in self:
            entry: dict[str, Json] = {"index": one.index, "label": one.label, "score": round(one.score, 6)}
            entry["box"] = [round(value, 2) for value in one.box]
            if one.landmarks:
                entry["landmarks"] = [[round(x, 2), round(y, 2)] for x, y in one.landmarks]
            found.append(entry)
        return found


def label_of(labels: Sequence[str], index: int) -> str:
    """The label of a class, or its number where there is no label for it.

    >>> label_of(["cat", "dog"], 1), label_of([], 7)
    ('dog', '7')
    """
    return labels[index] if index < len(labels) and labels[index] else str(index)
