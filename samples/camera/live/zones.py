"""Zones of the picture and their rules: a thing of one kind that stays for some seconds raises an alert."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from live.tracks import Box

MOST_ZONES, MOST_POINTS, MOST_NAME, MOST_S = 20, 50, 60, 3600.0
EDGE = 0.03
"""Corners that are nearer to an edge of the picture are on it: who is cut off by the edge stands there."""
WITHIN = 1 - 1e-9


@dataclass
class Zone:
    """One zone.

    Attributes:
        points: Its corners, x and y from 0 to 1 of the picture.
        label: What it watches for.
        seconds: How long that has to stay.
        since: Track -> when it came in; a track that fired stays in ``fired`` until it leaves.
        count: Tracks in it that the last frame shows: not those that are only expected there.
        firing: Whether the last frame shows a track that fired.
    """

    id: int
    name: str
    points: list[tuple[float, float]]
    label: str
    seconds: float
    since: dict[int, float] = field(default_factory=dict)
    fired: set[int] = field(default_factory=set)
    count: int = 0
    firing: bool = False

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id, "name": self.name, "points": [list(point) for point in self.points],
            "label": self.label, "seconds": self.seconds, "count": self.count,
            "firing": self.firing,
        }  # fmt: skip

    def update(self, boxes: Iterable[Box], width: int, height: int, now: float) -> list[Box]:
        """Return the boxes that have stayed long enough just now and are seen in this frame: an alert has its
        picture. A box is where it stands: at its bottom's middle, or at the picture's edge where it goes on
        beyond."""
        inside = {
            box.id: box
            for box in boxes
            if box.id is not None
            and box.label == self.label
            and contains(self.points, *_place(box, width, height))
        }
        self.since = {track: self.since.get(track, now) for track in inside}
        self.count = sum(box.seen for box in inside.values())
        self.fired &= set(inside)
        due = [
            track
            for track, since in self.since.items()
            if inside[track].seen and now - since >= self.seconds and track not in self.fired
        ]
        self.fired.update(due)
        self.firing = any(inside[track].seen for track in self.fired)
        return [inside[track] for track in due]


class Zones:
    """The zones that the user drew."""

    def __init__(self) -> None:
        self._zones: dict[int, Zone] = {}
        self._numbers = count(1)

    def add(self, wish: Mapping[str, Any], labels: Iterable[str]) -> Zone:
        """A new zone.

        Raises:
            ValueError: the wish is not one; the text says why.
        """
        if len(self._zones) >= MOST_ZONES:
            raise ValueError(f"there are {MOST_ZONES} zones already; delete one first")
        zone = Zone(next(self._numbers), *_checked(wish, list(labels)))
        self._zones = {**self._zones, zone.id: zone}
        return zone

    def remove(self, number: int) -> bool:
        """False: there is no such zone."""
        left = dict(self._zones)
        removed = left.pop(number, None) is not None
        self._zones = left
        return removed

    def update(self, boxes: list[Box], width: int, height: int, now: float) -> list[tuple[Zone, Box]]:
        """What fires now."""
        zones = self._zones.values()
        return [(zone, box) for zone in zones for box in zone.update(boxes, width, height, now)]

    def as_json(self) -> list[dict[str, Any]]:
        return [zone.as_json() for zone in self._zones.values()]


def contains(points: list[tuple[float, float]], x: float, y: float) -> bool:
    """Whether a polygon contains a point (even-odd rule).

    >>> square = [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)]
    >>> contains(square, 0.5, 0.5), contains(square, 1.5, 0.5)
    (True, False)
    """
    inside = False
    for (x1, y1), (x2, y2) in zip(points, points[1:] + points[:1], strict=True):
        if (y1 > y) != (y2 > y) and x < x1 + (y - y1) / (y2 - y1) * (x2 - x1):
            inside = not inside
    return inside


def _place(box: Box, width: int, height: int) -> tuple[float, float]:
    x, y = (box.box[0] + box.box[2]) / 2 / width, box.box[3] / height
    return min(max(x, 0.0), WITHIN), min(max(y, 0.0), WITHIN)


def _checked(wish: Mapping[str, Any], labels: list[str]) -> tuple[str, list[tuple[float, float]], str, float]:
    if not isinstance(wish, Mapping) or set(wish) != {"name", "points", "label", "seconds"}:
        raise ValueError("a zone has name, points, label and seconds, and nothing else")
    name, points, label, seconds = (wish[key] for key in ("name", "points", "label", "seconds"))
    if not isinstance(name, str) or not 0 < len(name) <= MOST_NAME or not name.isprintable():
        raise ValueError(f"name must be a text of 1 to {MOST_NAME} characters")
    if label not in labels:
        raise ValueError(f"label is {str(label)[:40]!r}; this detector finds {', '.join(labels[:10])}")
    if not _is_number(seconds) or not 0 <= seconds <= MOST_S:
        raise ValueError(f"seconds must be a number from 0 to {MOST_S:g}")
    if not isinstance(points, list) or not 3 <= len(points) <= MOST_POINTS:
        raise ValueError(f"points must be a list of 3 to {MOST_POINTS} corners")
    for point in points:
        pair = isinstance(point, list) and len(point) == 2
        if not pair or not all(_is_number(value) and 0 <= value <= 1 for value in point):
            raise ValueError("every corner is [x, y], from 0 to 1 of the picture")
    return name, [(_on_edge(x), _on_edge(y)) for x, y in points], label, float(seconds)


def _on_edge(value: float) -> float:
    """A coordinate, or the edge that it is near to."""
    return float(round(value)) if min(value, 1 - value) < EDGE else float(value)


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and abs(value) <= MOST_S  # false of NaN, and an int may be too large for a float
