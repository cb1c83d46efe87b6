"""Ids of the live camera against tracks made by hand, on a video with cuts and a camera that moves."""

from __future__ import annotations

import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

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
pytest.importorskip("norfair")
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
