"""Ids for boxes: the same thing keeps its number from frame to frame (norfair: Kalman filter and IoU)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from norfair import Detection, Tracker
from norfair.distances import VectorizedDistance

DISTANCE = 0.75
"""Boxes whose IoU is below 0.25 are different things."""
COAST_FRAMES, SURE_FRAMES = 15, 2
"""Frames that a lost track lives on, and after how many a new one gets a number."""


@dataclass(frozen=True)
class Box:
    """One thing in a frame.

    Attributes:
        id: The track's; None while it is new.
        label: The class's name.
        score: 0 to 1.
        box: x1, y1, x2, y2 in pixels of the frame.
        seen: Detected in this frame; else where the track is expected.
    """

    id: int | None
    label: str
    score: float
    box: tuple[float, float, float, float]
    seen: bool = True

    def as_json(self) -> dict[str, Any]:
        corners = [round(value, 1) for value in self.box]
        return {"id": self.id, "label": self.label, "score": round(self.score, 3), "box": corners}


class Tracks:
    """Follows the things of one source."""

    def __init__(self) -> None:
        self._tracker = Tracker(
            distance_function=VectorizedDistance(apart),
            distance_threshold=DISTANCE,
            hit_counter_max=COAST_FRAMES,
            initialization_delay=SURE_FRAMES,
        )

    def update(self, answer: Iterable[Any]) -> list[Box]:
        """The boxes of a frame with their ids, and those that were lost a moment ago, not ``seen``."""
        found = [
            Detection(np.asarray(each.box, np.float64).reshape(2, 2), label=each.label, data=each)
            for each in answer
        ]
        tracked = self._tracker.update(found)
        ids = {id(track.last_detection): track.id for track in tracked}
        boxes = [
            Box(ids.get(id(each)), each.label, float(each.data.score), _corners(each.points))
            for each in found
        ]
        present = {id(each) for each in found}
        for track in tracked:
            if id(track.last_detection) not in present:
                score = float(track.last_detection.data.score)
                boxes.append(Box(track.id, track.label, score, _corners(track.estimate), seen=False))
        return boxes


def apart(ones: Any, others: Any) -> Any:
    """1 - IoU of boxes.

    Args:
        ones: float [n, 4]: x1, y1, x2, y2.
        others: float [m, 4].

    Returns:
        float [n, m], 0 to 1.
    """
    low = np.maximum(ones[:, None, :2], others[None, :, :2])
    high = np.minimum(ones[:, None, 2:], others[None, :, 2:])
    shared = np.prod(np.maximum(high - low, 0.0), axis=2)
    areas = [np.prod(np.maximum(boxes[:, 2:] - boxes[:, :2], 0.0), axis=1) for boxes in (ones, others)]
    return 1.0 - shared / np.maximum(areas[0][:, None] + areas[1][None] - shared, 1e-9)


def _corners(points: Any) -> tuple[float, float, float, float]:
    (x1, y1), (x2, y2) = points.tolist()
    return x1, y1, x2, y2
