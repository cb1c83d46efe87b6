"""Ids for boxes: the same thing keeps its number from frame to frame (Kalman filter and IoU)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

DISTANCE = 0.85
"""Boxes whose IoU is below 0.15 are different things."""
COAST_FRAMES, NEW_FRAMES = 25, 1
"""Frames that a lost track lives on: one with a number, and one that was seen once."""
START = 10.0, 0.0, 1.0
"""Variance of a new track's place in pixels, covariance with its speed, variance of the speed."""
PROCESS_NOISE, DETECTION_NOISE = 0.1, 4.0
"""Variances: added in each frame, and of a detected coordinate; the defaults of the tracker Norfair."""


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
    """Tracker of one source's boxes."""

    def __init__(self) -> None:
        self._tracks: list[_Track] = []
        self._ids = count(1)

    def update(self, answer: Iterable[Any]) -> list[Box]:
        """Return the boxes of a frame with their ids, and those of lost tracks, not ``seen``."""
        found = list(answer)
        boxes = np.array([each.box for each in found], np.float64).reshape(-1, 4)
        labels = [each.label for each in found]
        alive = [track for track in self._tracks if track.frames_left]
        for track in alive:
            track.predict()
        ids: dict[int, int | None] = {}
        for tracks in ([each for each in alive if each.id], [each for each in alive if not each.id]):
            free = [n for n in range(len(found)) if n not in ids]
            for track, n in _nearest_pairs(tracks, boxes, labels, free):
                track.correct(boxes[n])
                track.id = track.id or next(self._ids)
                track.frames_left, track.seen = COAST_FRAMES, True
                ids[n] = track.id
        new = [_Track(labels[n], boxes[n]) for n in range(len(found)) if n not in ids]
        self._tracks = alive + new
        lost = [
            Box(track.id, track.label, 0.0, track.expected(), seen=False) for track in alive if not track.seen
        ]
        return [
            Box(ids.get(n), each.label, float(each.score), _corners(boxes[n])) for n, each in enumerate(found)
        ] + lost


class _Track:
    """One thing: a Kalman filter with constant velocity for its box.

    The four coordinates are independent and equally noisy, so one covariance is true of each.

    Attributes:
        id: None until the thing has been seen a second time.
        label: The class's name.
        box: Where it was seen last: float [4], x1, y1, x2, y2.
        place: The filter's estimate of the box; not always a box, its corners move independently.
        seen: Whether it was detected in the current frame.
        frames_left: Frames that it lives on unseen.
    """

    def __init__(self, label: str, box: Any) -> None:
        self.id: int | None = None
        self.label, self.box, self.place = label, box, box
        self.seen, self.frames_left = True, NEW_FRAMES
        self._speed = np.zeros(4)  # pixels a frame
        self._place_var, self._covariance, self._speed_var = START

    def predict(self) -> None:
        """Advance by one frame."""
        self.seen, self.frames_left = False, self.frames_left - 1
        self.place = self.place + self._speed
        self._place_var += 2 * self._covariance + self._speed_var + PROCESS_NOISE
        self._covariance += self._speed_var
        self._speed_var += PROCESS_NOISE

    def correct(self, box: Any) -> None:
        """Take the box of a detection into the estimate."""
        total = self._place_var + DETECTION_NOISE
        place_gain, speed_gain = self._place_var / total, self._covariance / total
        error = box - self.place
        self.box, self.place = box, self.place + place_gain * error
        self._speed = self._speed + speed_gain * error
        self._speed_var -= speed_gain * self._covariance
        self._place_var *= 1 - place_gain
        self._covariance *= 1 - place_gain

    def expected(self) -> tuple[float, float, float, float]:
        """Return a box as large as the one seen last, around the centre of the estimate."""
        shift = (self.place - self.box).reshape(2, 2).mean(axis=0)
        return _corners(self.box + np.tile(shift, 2))


def _nearest_pairs(
    tracks: Sequence[_Track], boxes: Any, labels: Sequence[str], free: Sequence[int]
) -> Iterator[tuple[_Track, int]]:
    """Yield pairs of a track and the number of a free box, nearest first, each of them once.

    The distance is 1 - IoU with the place where the track is expected or with its last box, whichever is
    less: who waits behind a van is found where he was lost, though the filter has moved on.
    """
    if not tracks or not free:
        return
    expected, seen = np.stack([each.place for each in tracks]), np.stack([each.box for each in tracks])
    distances = np.minimum(apart(boxes[free], expected), apart(boxes[free], seen))
    same = np.array([labels[n] for n in free])[:, None] == np.array([each.label for each in tracks])
    distances[~same] = np.inf
    while (nearest := distances.min()) < DISTANCE:
        row, column = np.argwhere(distances == nearest)[0]
        distances[row], distances[:, column] = np.inf, np.inf
        yield tracks[column], free[row]


def apart(ones: Any, others: Any) -> Any:
    """Compute 1 - IoU of boxes.

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


def _corners(box: Any) -> tuple[float, float, float, float]:
    x1, y1, x2, y2 = box.tolist()
    return x1, y1, x2, y2
