"""Frames that signature the same: what is measured before, what is refused, what is answered again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgekit
from edgekit.errors import UsageError
from edgekit.processing.predictions.classify import Classes
from edgekit.processing.predictions.detect import Detections
from edgekit.runtime import Session
from edgekit.runtime.caching.calibrate_similarity import (
    LIMITS,
    REUSES,
    PredictionCache,
    SimilarityCalibration,
    calibration_from_json,
    measure,
    same_prediction,
    simulate_cache,
)
from edgekit.runtime.caching.frame_signature import frame_distances, signature_of
from edgekit.runtime.caching.similar import Similar
from edgekit.runtime.clopper_pearson import upper_bound
from edgekit.runtime.metrics.metrics import Metrics
from edgekit.tensor_spec import Array
from tests.fixtures.models import COLOUR_CARD, COLOUR_FINDER, write

pytestmark = pytest.mark.needs_ort
RED, GREEN, BLUE = (200, 20, 20), (20, 200, 20), (20, 20, 200)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("colours")
    (folder / "card.toml").write_text(COLOUR_CARD, "utf-8")
    model = write(folder, COLOUR_FINDER)
    return edgekit.build(model, targets=["ort"], card=folder / "card.toml").save(folder / "b.edgekit")


@pytest.fixture
def session(path: Path) -> Iterator[Session]:
    with Session(path, threads=1) as session:
        yield session


def scene(colour: tuple[int, int, int], seed: int, size: tuple[int, int] = (96, 128)) -> Array:
    """A frame of one colour as a sensor gives it: noise of 3 levels."""
    noise = np.random.default_rng(seed).normal(0, 3, (*size, 3))
    return np.clip(np.rint(np.array(colour) + noise), 0, 255).astype(np.uint8)


def still(frames: int) -> Iterator[Array]:
    """A camera that stands still; the light changes its colour every 40 frames."""
    return (scene((RED, GREEN, BLUE)[n // 40 % 3], n) for n in range(frames))


# --- looks -----------------------------------------------------------------------------------------------


def test_noise_is_near_and_a_change_is_far() -> None:
    def distance(one: Array, other: Array) -> float:
        return float(frame_distances(one[None], other)[0])

    frame = scene(RED, 0, (480, 640))
    assert distance(signature_of(frame), signature_of(scene(RED, 1, (480, 640)))) < 3
    for channel in range(3):  # each colour alone is seen, and a place of 32 x 32 pixels
        changed = frame.copy()
        changed[200:232, 300:332, channel] ^= 0x80
        assert distance(signature_of(frame), signature_of(changed)) > 10
    cache = PredictionCache(256.0, 4)
    cache.keep(signature_of(frame), "another size")
    assert cache.find(signature_of(frame[:, ::2])) is None
    assert cache.find(signature_of(frame)) == ("another size",)


def test_a_look_is_the_mean_of_its_blocks() -> None:
    frame = np.zeros((64, 64, 3), np.uint8)
    frame[:32] = 90
    signature = signature_of(frame)
    assert signature.dtype == np.float32
    assert signature.shape[0] == 8
    assert (signature[:4] == 90).all()
    assert (signature[4:] == 0).all()


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (np.zeros((4, 4, 3), np.uint8), "a frame of 4 x 4 pixels has no blocks to compare"),
        (np.zeros((64, 64), np.uint8), "a frame is uint8 [rows, columns, 3], not uint8 [64, 64]"),
        (np.zeros((64, 64, 3), np.float32), "a frame is uint8 [rows, columns, 3], not float32 [64, 64, 3]"),
        ("no", "a frame is uint8 [rows, columns, 3], not str"),
    ],
)
def test_what_is_no_frame(frame: Any, text: str) -> None:
    with pytest.raises(UsageError) as error:
        signature_of(frame)
    assert str(error.value) == text


# --- answers ---------------------------------------------------------------------------------------------


def found(*things: tuple[int, float, tuple[float, ...]]) -> Detections:
    classes, scores, boxes = zip(*things, strict=True) if things else ((), (), ())
    return Detections(
        np.array(boxes, np.float32).reshape(-1, 4), np.array(scores, np.float32), np.array(classes, np.int64)
    )


HERE, NEAR, THERE = (0, 0, 10, 10), (0, 0, 10, 8), (50, 50, 60, 60)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (found(), found(), True),
        (found((1, 0.9, HERE)), found((1, 0.6, NEAR)), True),
        (found((1, 0.9, HERE)), found((1, 0.9, THERE)), False),
        (found((1, 0.9, HERE)), found((2, 0.9, HERE)), False),
        (found((1, 0.9, HERE)), found(), False),
        (found(), found((1, 0.9, HERE)), False),
        (found((1, 0.4, HERE)), found(), True),  # not sure of it
        (found((1, 0.6, HERE)), found((1, 0.4, HERE)), True),
    ],
)
def test_the_same_things_are_found(one: Detections, other: Detections, same: bool) -> None:
    assert same_prediction(one, other) is same


def test_the_same_class_is_named() -> None:
    def classes(first: int) -> Classes:
        return Classes(np.array([first, 7]), np.array([0.9, 0.1], np.float32))

    assert same_prediction(classes(3), classes(3))
    assert not same_prediction(classes(3), classes(4))
    with pytest.raises(UsageError) as error:
        same_prediction({}, {})
    assert str(error.value) == "pass same= to compare two predictions: these are dict"


# --- measuring -------------------------------------------------------------------------------------------


def test_the_bound_of_a_rate() -> None:
    """Against the binomial distribution summed by hand, and the table that everybody knows: 3 in n."""
    assert upper_bound(0, 299) == pytest.approx(1 - 0.05 ** (1 / 299))
    assert upper_bound(0, 299) < 0.01 < upper_bound(0, 298)
    assert upper_bound(10, 10) == upper_bound(0, 0) == 1.0
    rate = upper_bound(2, 50)
    below = (1 - rate) ** 50 + 50 * rate * (1 - rate) ** 49 + 1225 * rate**2 * (1 - rate) ** 48
    assert below == pytest.approx(0.05, rel=1e-6)


def test_a_still_camera_gets_a_permit_and_few_runs(session: Session) -> None:
    calibration = measure(session, still(240))
    assert calibration.granted
    assert calibration.model == session.bundle.digest
    assert (calibration.frames, calibration.hits, calibration.false_hits) == (120, 117, 0)
    assert (
        str(calibration) == "granted: 117 of 120 frames need no run, 0 false, below 2.5% with 95 % confidence"
    )
    metrics = Metrics(session)
    gate = Similar(session, calibration, metrics)
    answers = [gate.predict(frame)[0].label for frame in still(120)]
    assert answers == ["red"] * 40 + ["green"] * 40 + ["blue"] * 40
    assert (gate.hits, gate.misses) == (117, 3)
    assert metrics.snapshot()["outcomes"] == {"reused": 117}


def test_another_variant_answers_anew(session: Session) -> None:
    calibration = measure(session, still(240))

    class Switches:
        bundle, active = session.bundle, "one"

        def predict(self, frame: Array) -> str:
            return self.active

    switches = Switches()
    gate = Similar(switches, calibration)  # type: ignore[arg-type]
    frame = scene(RED, 0)
    assert [gate.predict(frame), gate.predict(frame), gate.hits] == ["one", "one", 1]
    switches.active = "two"
    assert [gate.predict(frame), gate.predict(frame), gate.hits] == ["two", "two", 2]


def test_a_scene_that_comes_back_is_known_with_more_references(session: Session) -> None:
    frames = [scene((RED, GREEN, BLUE)[n % 3], n) for n in range(240)]
    assert measure(session, frames).hits == 0  # nothing looks like the frame before
    calibration = measure(session, frames, references=3)
    assert (calibration.hits, calibration.false_hits, calibration.granted) == (117, 0, True)
    cache = Similar(session, calibration)
    assert [cache.predict(frame)[0].label for frame in frames[:6]] == ["red", "green", "blue"] * 2
    assert (cache.hits, cache.misses) == (3, 3)


def test_too_few_frames_prove_nothing(session: Session) -> None:
    calibration = measure(session, still(80))
    assert (calibration.hits, calibration.false_hits, calibration.granted) == (39, 0, False)
    with pytest.raises(UsageError) as error:
        Similar(session, calibration)
    assert str(error.value) == (
        "predictions must not be reused: 0 of 39 hits were false, so the rate may be up to 7.4%; "
        "the bound is 5.0%"
    )
    with pytest.raises(UsageError, match=r"^1 frames are too few; use frames from several hours$"):
        measure(session, still(1))
    for wrong in ({"bound": 0.0}, {"bound": 1.0}, {"references": 0}):
        with pytest.raises(UsageError, match=r"^bound must be above 0 and below 1, and references "):
            measure(session, still(4), **wrong)


def test_answers_that_change_unseen_are_refused(session: Session) -> None:
    """What the second half shows counts, however well the first half looked."""
    told = [True] * 120 + [n % 10 != 0 for n in range(120)]
    seen = iter(told)

    class Sees:
        bundle = session.bundle

        def predict(self, frame: Array) -> bool:
            return next(seen)

    calibration = measure(Sees(), still(240), same=lambda one, other: one == other)  # type: ignore[arg-type]
    assert calibration.false_hits > 5
    assert not calibration.granted
    assert "hits were false" in calibration.refusal


def test_what_reuse_would_have_cost_is_counted() -> None:
    """Looks one after the other 3 levels apart, an answer that changes at every second one."""
    looks = [np.full((1, 1), 3.0 * n, np.float32) for n in range(100)]
    seen = [(signature, n // 2) for n, signature in enumerate(looks)]
    counts = [
        simulate_cache(seen, PredictionCache(limit, 1), lambda one, other: one == other) for limit in LIMITS
    ]
    assert all(hits == 0 for (hits, _), limit in zip(counts, LIMITS, strict=True) if limit < 3)
    assert counts[LIMITS.index(4.0)] == (50, 0)
    assert counts[LIMITS.index(8.0)] == (66, 49)


def test_an_answer_is_used_so_often_and_no_more() -> None:
    cache = PredictionCache(1.0, 1)
    signature = np.zeros((2, 2), np.float32)
    cache.keep(signature, "answer")
    assert [cache.find(signature) for _ in range(REUSES)] == [("answer",)] * REUSES
    assert cache.find(signature) is None


def test_nothing_is_permitted_without_measuring(session: Session, tmp_path: Path) -> None:
    calibration = measure(session, still(240))
    kept = calibration.as_json()
    assert calibration_from_json(kept) == calibration
    other = replace(calibration, model="0" * 64)
    with pytest.raises(UsageError) as error:
        Similar(session, other)
    assert str(error.value) == (
        f"the calibration belongs to another model than {session.bundle.name}: run measure() on this one"
    )
    none = SimilarityCalibration(calibration.model, 0.0, 1, 0.05, 9, 0, 0, 1.0)
    with pytest.raises(UsageError, match="none of 9 frames would reuse a prediction within that bound"):
        Similar(session, none)
    table = json.loads(kept)
    for wrong in (
        b"[]",
        b"{",
        json.dumps({**table, "hits": 3}).encode(),
        json.dumps({**table, "limit": "9"}).encode(),
    ):
        with pytest.raises(
            UsageError,
            match=r"^this is not a calibration that SimilarityCalibration.as_json wrote; measure again$",
        ):
            calibration_from_json(wrong)
