"""Things found in a frame, with their keypoints: a person's joints, a hand's or a face's landmarks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.processing.predictions.label import corners_text, label_of, listed
from edgekit.processing.predictions.prediction import Prediction
from edgekit.tensor_spec import Array, Json

if TYPE_CHECKING:
    from edgekit.processing.drawing import Canvas

VISIBLE_SCORE = 0.5
"""Score from which a keypoint is counted as visible in text (Ultralytics draws from 0.5 on too)."""


@dataclass(frozen=True)
class KeypointInstance:
    """One thing found, with its keypoints.

    Attributes:
        index: Class number.
        score: 0 to 1.
        box: x1, y1, x2, y2 in the frame's pixels; None if the model gives none.
        points: x, y in the frame's pixels.
        point_scores: 0 to 1 for each point; empty if the model gives none.
        depths: z for each point; empty if the model gives none.
    """

    index: int
    label: str
    score: float
    box: tuple[float, float, float, float] | None
    points: tuple[tuple[float, float], ...]
    point_scores: tuple[float, ...] = ()
    depths: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False, repr=False)
class Keypoints(Prediction):
    """Poses found in a frame, best score first. All have the same keypoints.

    Attributes:
        points: float32 [n, k, 2]: x, y in the frame's pixels.
        scores: float32 [n], 0 to 1.
        classes: int64 [n]; None if there is only one class.
        labels: The card's labels by class number, or empty.
        boxes: float32 [n, 4]: x1, y1, x2, y2 in the frame's pixels; None if the model returns none.
        point_scores: float32 [n, k], 0 to 1; None if the model returns none.
        depths: float32 [n, k]: z in the frame's pixels (along x), smaller is nearer to the camera; None if
            the model returns none.
        names: Names of the k keypoints, or empty.
        skeleton: Pairs of keypoint numbers that are joined by a line.
    """

    points: Array
    scores: Array
    classes: Array | None = None
    labels: Sequence[str] = ()
    boxes: Array | None = None
    point_scores: Array | None = None
    depths: Array | None = None
    names: Sequence[str] = ()
    skeleton: Sequence[tuple[int, int]] = ()

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> KeypointInstance:
        class_index = int(self.classes[index]) if self.classes is not None else 0
        box = None
        if self.boxes is not None:
            x1, y1, x2, y2 = self.boxes[index].tolist()
            box = (x1, y1, x2, y2)
        return KeypointInstance(
            class_index,
            label_of(self.labels, class_index),
            float(self.scores[index]),
            box,
            tuple((x, y) for x, y in self.points[index].tolist()),
            tuple(self.point_scores[index].tolist()) if self.point_scores is not None else (),
            tuple(self.depths[index].tolist()) if self.depths is not None else (),
        )

    def __iter__(self) -> Iterator[KeypointInstance]:
        return (self[index] for index in range(len(self)))

    def draw_on(self, canvas: Canvas) -> None:
        for number, instance in enumerate(self):
            colour = canvas.colour_of(number)
            shown = [score >= VISIBLE_SCORE for score in instance.point_scores]
            shown = shown or [True] * len(instance.points)
            for a, b in self.skeleton:
                if shown[a] and shown[b]:
                    canvas.path([instance.points[a], instance.points[b]], colour)
            # A mesh of hundreds of points is drawn with small ones.
            radius = canvas.line * (1.5 if len(instance.points) < 100 else 0.5)
            for point, visible in zip(instance.points, shown, strict=True):
                if visible:
                    canvas.dot(point, colour, radius)
            if instance.box is not None:
                canvas.box(instance.box, colour)
            corner = (
                instance.box[:2] if instance.box is not None else min(instance.points, key=lambda p: p[1])
            )
            canvas.label(f"{instance.label} {instance.score:.2f}", corner, colour)

    def __str__(self) -> str:
        return listed((instance.label, instance.score, _position_text(instance)) for instance in self)

    def as_json(self) -> list[dict[str, Json]]:
        """Return the ``keypoints`` of each instance: [x, y, score, z] by name, or as a list if they have no
        names. A score or z that the model does not predict is left out."""
        rows = []
        for one in self:
            entry: dict[str, Json] = {"index": one.index, "label": one.label, "score": round(one.score, 6)}
            if one.box is not None:
                entry["box"] = [round(value, 2) for value in one.box]
            points: list[Json] = []
            for number, (x, y) in enumerate(one.points):
                point: list[Json] = [round(x, 2), round(y, 2)]
                point += [round(one.point_scores[number], 4)] if one.point_scores else []
                point += [round(one.depths[number], 2)] if one.depths else []
                points.append(point)
            named = len(self.names) == len(points)
            entry["keypoints"] = dict(zip(self.names, points, strict=True)) if named else points
            rows.append(entry)
        return rows


def _position_text(instance: KeypointInstance) -> str:
    xs, ys = [x for x, _ in instance.points], [y for _, y in instance.points]
    box = instance.box or (min(xs), min(ys), max(xs), max(ys))
    visible_count = sum(score >= VISIBLE_SCORE for score in instance.point_scores)
    visible = f", {visible_count} visible" if instance.point_scores else ""
    return f"{corners_text(box)}  {len(instance.points)} keypoints{visible}"
