"""Ids of the live camera against tracks made by hand, on a video with cuts and a camera that moves."""

from __future__ import annotations

import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import edgekit
from edgekit.runtime import Session
from tests.samples.live_camera import SAMPLE

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

cv2 = pytest.importorskip("cv2")
HERE = Path(__file__).resolve().parent
OVERLAP = 0.3
"""IoU with the box made by hand from which on a track is on its person."""
LEAST = {"man in a suit": 0.9, "cyclist, behind a van for a while": 0.9, "walker, without a head": 0.9}
"""Share of the frames in view that one id has; the cyclist's is the same before the van and after it."""


def box_at(person: dict[str, Any], number: int) -> Any:
    """A person's box at a frame: float [4]."""
    known = {int(frame): np.array(box, float) for frame, box in person["boxes"].items()}
    if number in known:
        return known[number]
    before, after = next((a, b) for a, b in pairwise(sorted(known)) if a < number < b)
    return known[before] + (known[after] - known[before]) * (number - before) / (after - before)


def survival(person: dict[str, Any], boxes: list[list[Any]], apart: Any) -> float:
    """The share of a person's frames in view that its most frequent id is on it."""
    numbers = [n for first, last in person["frames"] for n in range(first, last + 1)]
    ids: Counter[int] = Counter()
    for number in numbers:
        there = [box for box in boxes[number] if box.label == "person" and box.id is not None]
        if there:
            far = apart(np.array([box.box for box in there]), box_at(person, number)[None])[:, 0]
            ids.update({box.id for box, one in zip(there, far, strict=True) if one < 1 - OVERLAP})
    return max(ids.values(), default=0) / len(numbers)


@pytest.mark.needs_shared
@pytest.mark.needs_ort
def test_ids_stay_with_their_persons(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SAMPLE))
    from live.tracks import Tracks, apart

    card = SAMPLE.parent / "cards" / "yolox_nano.toml"
    capture = cv2.VideoCapture(str(shared / "data" / "video" / "bikes.mp4"))
    tracks, boxes = Tracks(), []
    with (
        edgekit.build(shared / "models" / "yolox_nano.onnx", targets=("ort",), card=card) as made,
        Session(made) as session,
    ):
        while (read := capture.read())[0]:
            boxes.append(tracks.update(session.predict(read[1], order="bgr")))
    assert len(boxes) == 250
    persons = tomllib.loads((HERE / "bikes_tracks.toml").read_text("utf-8"))["person"]
    kept = {person["name"]: survival(person, boxes, apart) for person in persons}
    assert set(kept) == set(LEAST)
    assert {name: share for name, share in kept.items() if share < LEAST[name]} == {}


class Found(NamedTuple):
    label: str
    box: tuple[float, float, float, float]
    score: float = 0.5


@pytest.fixture
def tracks(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SAMPLE))
    from live.tracks import Tracks

    return Tracks()


def ids(boxes: list[Any]) -> list[tuple[int | None, bool]]:
    return [(box.id, box.seen) for box in boxes]


def test_a_thing_has_an_id_when_it_is_seen_again_and_keeps_it_while_it_is_hidden(tracks: Any) -> None:
    assert ids(tracks.update([Found("car", (0, 0, 40, 20))])) == [(None, True)]
    for step in range(1, 20):
        assert ids(tracks.update([Found("car", (4 * step, 0, 40 + 4 * step, 20))])) == [(1, True)]
    for step in range(20, 40):
        (box,) = tracks.update([])
        assert (box.id, box.label, box.score, box.seen) == (1, "car", 0.0, False)
        np.testing.assert_allclose(box.box, (4 * step, 0, 40 + 4 * step, 20), atol=2)  # it drives on
    assert ids(tracks.update([Found("car", (160, 0, 200, 20))])) == [(1, True)]
    for _ in range(25):
        assert ids(tracks.update([])) == [(1, False)]
    assert tracks.update([]) == []
    for expected in (None, 2):  # it was away for too long
        assert ids(tracks.update([Found("car", (160, 0, 200, 20))])) == [(expected, True)]


def test_a_flash_has_no_id(tracks: Any) -> None:
    for _ in range(3):
        assert ids(tracks.update([Found("car", (0, 0, 9, 9))])) == [(None, True)]
        assert ids(tracks.update([])) == [(None, False)]
        assert tracks.update([]) == []


def test_labels_and_distances_decide(tracks: Any) -> None:
    things = [Found("car", (0, 0, 40, 20)), Found("person", (5, 0, 45, 20)), Found("car", (30, 0, 70, 20))]
    tracks.update(things)
    assert ids(tracks.update(things)) == [(1, True), (2, True), (3, True)]
    assert ids(tracks.update(things[::-1])) == [(3, True), (2, True), (1, True)]
    far = Found("car", (100, 0, 140, 20))
    assert ids(tracks.update([far])) == [(None, True), (1, False), (2, False), (3, False)]


def test_the_filter_is_that_of_opencv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SAMPLE))
    from live.tracks import DETECTION_NOISE, PROCESS_NOISE, START, _Track

    place, both, speed = START
    theirs = cv2.KalmanFilter(2, 1, 0, cv2.CV_64F)
    theirs.transitionMatrix = np.array([[1.0, 1.0], [0.0, 1.0]])
    theirs.measurementMatrix = np.array([[1.0, 0.0]])
    theirs.processNoiseCov = PROCESS_NOISE * np.eye(2)
    theirs.measurementNoiseCov = np.array([[DETECTION_NOISE]])
    theirs.errorCovPost = np.array([[place, both], [both, speed]])
    theirs.statePost = np.array([[7.0], [0.0]])
    ours = _Track("car", np.full(4, 7.0))
    random = np.random.default_rng(0)
    for step in range(30):
        ours.predict()
        np.testing.assert_allclose(ours.place, np.full(4, theirs.predict()[0, 0]))
        if step % 5 != 4:  # now and then it is not seen
            seen = 7 + 3 * step + random.normal()
            ours.correct(np.full(4, seen))
            np.testing.assert_allclose(ours.place, np.full(4, theirs.correct(np.array([[seen]]))[0, 0]))
