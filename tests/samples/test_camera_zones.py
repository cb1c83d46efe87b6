"""Which things are in a zone: those that stand in it, or that the picture's edge cuts off beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "camera"


def fired(corners: list[list[float]], box: tuple[float, float, float, float], seconds: float = 0.0) -> Any:
    """What fires for one person in a picture of 100 x 100 pixels, now and a second later."""
    from live.tracks import Box
    from live.zones import Zones

    zones = Zones()
    zones.add({"name": "z", "points": corners, "label": "person", "seconds": seconds}, ["person", "car"])
    seen = [Box(1, "person", 0.9, box), Box(2, "car", 0.9, box), Box(None, "person", 0.9, box)]
    return [[each.id for _, each in zones.update(seen, 100, 100, now)] for now in (0.0, 1.0)]


def rectangle(left: float, top: float, right: float, bottom: float) -> list[list[float]]:
    return [[left, top], [right, top], [right, bottom], [left, bottom]]


@pytest.fixture(autouse=True)
def _sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SAMPLE))


def test_a_thing_is_where_it_stands() -> None:
    assert fired(rectangle(0.1, 0.5, 0.9, 0.8), (40, 10, 60, 70)) == [[1], []]
    assert fired(rectangle(0.1, 0.5, 0.9, 0.8), (40, 55, 60, 90)) == [[], []]
    assert fired(rectangle(0.1, 0.5, 0.9, 0.8), (40, 10, 60, 70), 0.5) == [[], [1]]


def test_who_is_cut_off_by_the_edge_stands_at_it() -> None:
    """A zone that is drawn down to the edge, as nearly as a finger can, holds them."""
    assert fired(rectangle(0.1, 0.5, 0.9, 0.98), (40, 10, 60, 100)) == [[1], []]
    assert fired(rectangle(0.1, 0.5, 0.9, 0.98), (40, 10, 60, 112)) == [[1], []]
    assert fired(rectangle(0.1, 0.5, 0.98, 0.9), (95, 10, 115, 70)) == [[1], []]
    assert fired(rectangle(0.1, 0.5, 0.9, 0.9), (40, 10, 60, 100)) == [[], []]


def test_a_track_that_is_not_seen_raises_its_alert_when_it_is() -> None:
    """The picture of an alert shows what it is about; hidden time counts as stayed."""
    from live.tracks import Box
    from live.zones import Zones

    zones = Zones()
    corners = rectangle(0.1, 0.5, 0.9, 0.8)
    zones.add({"name": "Door", "points": corners, "label": "person", "seconds": 1.0}, ["person"])
    seen = Box(1, "person", 0.9, (40, 10, 60, 70))
    coasting = Box(1, "person", 0.0, (40, 10, 60, 70), seen=False)
    fires, counts, firing = [], [], []
    for box, now in (
        (seen, 0.0), (coasting, 1.0), (coasting, 2.0), (seen, 2.1), (coasting, 2.2), (seen, 2.3),
    ):  # fmt: skip
        fires.append(bool(zones.update([box], 100, 100, now)))
        counts.append(zones.as_json()[0]["count"])
        firing.append(zones.as_json()[0]["firing"])
    assert fires == [False, False, False, True, False, False]
    assert counts == [1, 0, 0, 1, 0, 1]
    assert firing == [False, False, False, True, False, True]


def test_the_picture_of_an_alert_has_its_box() -> None:
    import numpy as np
    from live.pictures import MARK, marked
    from live.tracks import Box

    frame = np.full((300, 400, 3), 90, np.uint8)
    picture = marked(frame, Box(1, "person", 0.9, (-20.0, 100.0, 120.0, 250.0)))
    assert tuple(picture[180, 120]) == tuple(picture[250, 60]) == MARK
    assert (picture[180, 60] == 90).all()
    assert (picture[0:60] == 90).all()
    assert (frame == 90).all()
