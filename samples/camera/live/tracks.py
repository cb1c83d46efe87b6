"""Ids for boxes: the same thing keeps its number from frame to frame (norfair: Kalman filter and IoU)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from norfair import Detection, Tracker
from norfair.distances import Distance

DISTANCE = 0.85
"""Boxes whose IoU is below 0.15 are different things."""
COAST_FRAMES, SURE_FRAMES = 25, 1
"""Frames that a lost track lives on, and after how many a new one gets a number."""


@dataclass(frozen=True)
class Box:
    """One thing in a frame.

    Attributes:
        id: The track's; None while it is new.
        label: The class's name.
        score: 0 to 1; 0 where it is not seen.
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
        self._frame = 0
        self._tracker = Tracker(
            distance_function="iou",
            distance_threshold=DISTANCE,
            hit_counter_max=COAST_FRAMES,
            initialization_delay=SURE_FRAMES,
        )
        self._tracker.distance_function = NearerPlace()

    def update(self, answer: Iterable[Any]) -> list[Box]:
        """The boxes of a frame with their ids, and those that were lost a moment ago, not ``seen``."""
        self._frame += 1
        found = list(answer)
        places = [np.asarray(each.box, np.float64).reshape(2, 2) for each in found]
        tracked = self._tracker.update(
            [
                Detection(points, label=each.label, data=(self._frame, n))
                for n, (each, points) in enumerate(zip(found, places, strict=True))
            ]
        )
        ids, lost = {track.last_detection.data: track.id for track in tracked}, []
        for track in self._tracker.tracked_objects:  # those that are too new for an id as well
            if track.last_detection.data[0] != self._frame:
                place = _moved(track.last_detection.points, track.estimate)
                lost.append(Box(track.id, track.label, 0.0, place, seen=False))
        boxes = [
            Box(ids.get((self._frame, n)), each.label, float(each.score), _corners(points))
            for n, (each, points) in enumerate(zip(found, places, strict=True))
        ]
        return boxes + lost


class NearerPlace(Distance):  # type: ignore[misc]
    """1 - IoU with where a track is expected or with where it was seen last, whichever is less.

    Who waits behind a van is found where he was lost, though the filter has moved on. Norfair's own IoU takes
    the expected place alone, and prints a line for every box that a filter has turned inside out.
    """

    def get_distances(self, objects: Sequence[Any], candidates: Sequence[Any] | None) -> Any:
        """float [candidates, objects]; infinite for another label."""
        if not objects or not candidates:
            return np.full((len(candidates or ()), len(objects)), np.inf)
        found = np.stack([each.points.ravel() for each in candidates])
        expected = np.stack([track.estimate.ravel() for track in objects])
        seen = np.stack([track.last_detection.points.ravel() for track in objects])
        labels = {label: n for n, label in enumerate({each.label for each in (*objects, *candidates)})}
        ones, others = (np.array([labels[each.label] for each in some]) for some in (candidates, objects))
        nearer = np.minimum(apart(found, expected), apart(found, seen))
        return np.where(ones[:, None] == others[None], nearer, np.inf)


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


def _moved(seen: Any, expected: Any) -> tuple[float, float, float, float]:
    """A box as large as it was seen, where a filter expects it (whose own box may be inside out)."""
    return _corners(seen - seen.mean(axis=0) + expected.mean(axis=0))


def _corners(points: Any) -> tuple[float, float, float, float]:
    (x1, y1), (x2, y2) = points.tolist()
    return x1, y1, x2, y2
