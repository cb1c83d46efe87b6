"""What leaves the camera while blur is on, by its pixels: pictures of the page and of alerts."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import edgekit
from edgekit.runtime import Session
from tests.fixtures.models import COLOUR_CARD, COLOUR_FINDER, write
from tests.samples.live_camera import EVERYWHERE, SAMPLE, LiveCamera

cv2 = pytest.importorskip("cv2")
pytest.importorskip("aiohttp")
pytestmark = pytest.mark.needs_ort

INSIDE, OUTSIDE, BELOW = np.s_[24:72, 32:96], np.s_[2:14, 2:126], np.s_[82:94, 2:126]
"""Where the finder finds its person, and what is far enough from it to stay sharp."""
CHECKS = np.kron(np.random.default_rng(2).choice([-1.0, 1.0], (24, 32)), np.ones((4, 4)))
"""What a person looks like: float [96, 128], squares of 4 pixels at random."""
UNSEEN = 6
"""Every so many frames the person is there, and the detector finds nobody."""


def street(number: int) -> Any:
    """The same person all the time, in a light in which it is found, or in one in which it is not."""
    light = 40.0 if number % UNSEEN == UNSEEN - 1 else 180.0
    grey = light + 30.0 * CHECKS + number % 3
    return np.stack([grey, 0.3 * grey, 0.3 * grey], axis=2).clip(0, 255).astype(np.uint8)


def likeness(picture: Any, place: Any) -> float:
    """How much of the person's looks is left: the correlation with them, of what is as small as a square."""
    grey = picture[..., 0].astype(np.float64)
    fine = [each[place] - cv2.blur(each, (9, 9))[place] for each in (grey, CHECKS)]
    return float(np.corrcoef(fine[0].ravel(), fine[1].ravel())[0, 1])


def edges(picture: Any, place: Any) -> float:
    """The variance of what a Laplacian finds."""
    return float(cv2.Laplacian(picture[..., 0].astype(np.float64), cv2.CV_64F)[place].var())


def opened(content: bytes) -> Any:
    return cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Finds a person where a picture is blue."""
    folder = tmp_path_factory.mktemp("bundle")
    (folder / "card.toml").write_text(COLOUR_CARD.replace('"blue"', '"person"'), "utf-8")
    model = write(folder, COLOUR_FINDER)
    edgekit.build(model, targets=("ort",), card=folder / "card.toml").save(folder / "person.edgekit")
    return folder / "person.edgekit"


def filmed(path: Path, frames: int) -> Path:
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 25.0, (128, 96))
    for number in range(frames):
        writer.write(street(number))
    writer.release()
    return path


@pytest.fixture(scope="module")
def camera(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCamera]:
    folder = tmp_path_factory.mktemp("home")
    with LiveCamera(bundle, filmed(folder / "street.avi", 60), folder / "camera") as running:
        running.wait(lambda state: state["frames"] > 2 * UNSEEN, 10)
        yield running


def switch_blur(camera: LiveCamera, on: bool) -> int:
    """The number of the first frame from which on it surely holds."""
    camera.switch("blur", on)
    return int(camera.state()["frames"]) + 1


def test_no_looks_leave_with_the_page(camera: LiveCamera) -> None:
    """Nor in the frames in which the person is not found: its track goes on for them."""
    since = switch_blur(camera, False)
    plain = [picture for head, picture in camera.frames(2 * UNSEEN + 2) if head["frame"] >= since]
    since = switch_blur(camera, True)
    hidden = [(head, picture) for head, picture in camera.frames(4 * UNSEEN) if head["frame"] >= since]
    switch_blur(camera, False)
    assert min(likeness(picture, INSIDE) for picture in plain) > 0.8
    assert {len(head["boxes"]) for head, _ in hidden} == {0, 1}  # found, and not found
    left = max(abs(likeness(picture, INSIDE)) for _, picture in hidden)
    sharp = max(edges(picture, INSIDE) for _, picture in hidden)
    assert left < 0.15
    assert sharp < 0.1 * min(edges(picture, INSIDE) for picture in plain)
    assert min(likeness(picture, OUTSIDE) for _, picture in hidden) > 0.8  # the street is as it was


def test_no_looks_leave_with_an_alert(camera: LiveCamera) -> None:
    switch_blur(camera, True)
    zone = camera.ask("POST", "/api/zones", json={**EVERYWHERE, "label": "person", "seconds": 0})[1]
    alert = camera.wait(lambda state: state["alerts"], 10)["alerts"][0]
    status, content = camera.ask("GET", f"/api/alerts/{alert['id']}.jpg")
    camera.wait(lambda state: state["network"]["queued"] == 0, 10)
    camera.ask("DELETE", f"/api/zones/{zone['id']}")
    switch_blur(camera, False)
    received = list((camera.log.with_suffix("") / "received").iterdir())
    sent = [base64.b64decode(json.loads(path.read_text("utf-8"))["picture"]) for path in received]
    assert status == 200
    assert content in sent
    for picture in map(opened, sent):
        assert abs(likeness(picture, INSIDE)) < 0.15
        assert likeness(picture, BELOW) > 0.8  # above the person is the label of the box


def test_while_blur_is_on_no_frame_is_shown_that_was_not_looked_at(bundle: Path, tmp_path: Path) -> None:
    """A still scene saves runs; who comes in too slowly to be noticed would be shown without blur."""
    with LiveCamera(bundle, filmed(tmp_path / "still.avi", 1), tmp_path / "home") as camera:
        camera.wait(lambda state: state["frames"] > 5, 10)
        assert not all(head["motion"] for head, _ in camera.frames(10))
        since = switch_blur(camera, True)
        assert all(head["motion"] for head, _ in camera.frames(10) if head["frame"] >= since)


# --- real detectors ----------------------------------------------------------------------------------------


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SAMPLE))
    from live import pictures

    return pictures


@pytest.mark.needs_shared
def test_a_blurred_face_is_no_face_to_its_detector(shared: Path, pictures: ModuleType) -> None:
    photo = cv2.imread(str(SAMPLE / "photo.jpg"))
    card = SAMPLE.parent / "cards" / "centerface.toml"
    made = edgekit.build(shared / "models" / "centerface.onnx", targets=("ort",), card=card)
    with made, Session(made) as session:
        found = session.predict(photo, order="bgr")
        hidden = opened(pictures.encoded(pictures.blurred(photo, found, ("face",))))
        assert [len(session.predict(each, order="bgr", score=0.2)) > 0 for each in (photo, hidden)] == [
            True,
            False,
        ]


@pytest.mark.needs_shared
def test_blurred_persons_are_no_persons_to_their_detector(shared: Path, pictures: ModuleType) -> None:
    """Of a street: every tenth frame."""
    card = SAMPLE.parent / "cards" / "yolox_nano.toml"
    capture = cv2.VideoCapture(str(shared / "data" / "video" / "bikes.mp4"))
    made = edgekit.build(shared / "models" / "yolox_nano.onnx", targets=("ort",), card=card)
    persons = again = 0
    with made, Session(made) as session:
        for number in range(0, 250, 10):
            capture.set(cv2.CAP_PROP_POS_FRAMES, number)
            frame = capture.read()[1]
            found = [each for each in session.predict(frame, order="bgr") if each.label == "person"]
            hidden = opened(pictures.encoded(pictures.blurred(frame, found, ("person",))))
            left = [each.box for each in session.predict(hidden, order="bgr") if each.label == "person"]
            persons += len(found)
            again += sum(any(overlap(each.box, box) > 0.3 for box in left) for each in found)
    assert persons >= 10
    assert again == 0


def overlap(one: Any, other: Any) -> float:
    """IoU of two boxes."""
    (x1, y1, x2, y2), (a1, b1, a2, b2) = one, other
    shared = max(0.0, min(x2, a2) - max(x1, a1)) * max(0.0, min(y2, b2) - max(y1, b1))
    return float(shared / ((x2 - x1) * (y2 - y1) + (a2 - a1) * (b2 - b1) - shared))
