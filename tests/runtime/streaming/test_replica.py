"""A variant beside the session: takes what the session takes, and leaves what fails to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pytest

from edgekit.errors import NonFiniteOutputError, UsageError
from edgekit.runtime import Session
from edgekit.runtime.streaming.replica import Replica
from edgekit.tensor_spec import Array
from tests.fixtures.bundles import X, small_bundle, variant
from tests.fixtures.fake_engines import Behaviour, Engines, doubled, nothing, throws, wrong_shape


@pytest.fixture
def session(engines: Engines) -> Iterator[Session]:
    variants = [
        variant("onnx", "ort", p50_ms=7.0),
        variant("lite", "tflite"),
        variant("bad", "ort", status="rejected: slow"),
    ]
    with Session(small_bundle(variants)) as session:
        yield session


def test_it_takes_arrays_as_the_session_does(session: Session, engines: Engines) -> None:
    contiguous = []

    def seen(feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        contiguous.append(feeds["x"].flags.c_contiguous)
        return doubled(feeds)

    engines["tflite"].behaviour["lite"] = seen  # type: ignore[assignment]
    beside = Replica(session, "lite", 1)
    wide = np.repeat(X, 2, axis=1)[:, ::2]
    np.testing.assert_array_equal(beside.run({"x": wide})["y"], 2 * X)
    assert contiguous == [True]
    beside.close()
    beside.close()
    assert engines["tflite"].closed == 1
    np.testing.assert_array_equal(beside.run({"x": X})["y"], 2 * X)  # the session's


@pytest.mark.parametrize("fails", [throws, wrong_shape, nothing])
def test_the_session_answers_what_fails(session: Session, engines: Engines, fails: Behaviour) -> None:
    engines["tflite"].behaviour["lite"] = fails
    beside = Replica(session, "lite", 1)
    np.testing.assert_array_equal(beside.run({"x": X})["y"], 2 * X)
    assert beside.failed
    assert engines["tflite"].closed == 1  # its memory is free at once
    assert session.fallbacks == ()


@pytest.mark.parametrize("name", ["none", "bad"])
def test_a_variant_that_is_not_to_run(session: Session, name: str) -> None:
    with pytest.raises(UsageError) as error:
        Replica(session, name, 1)
    text = f"{session.bundle.name} has no usable variant {name!r}; it has onnx, lite"
    assert str(error.value) == text


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [1000.0]
    monkeypatch.setattr("edgekit.runtime.streaming.replica.monotonic", lambda: clock[0])
    return clock


def until(beside: Replica, reached: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not reached():
        assert time.monotonic() < end
        np.testing.assert_array_equal(beside.run({"x": X})["y"], 2 * X)


def test_what_failed_is_loaded_again_after_a_growing_cooldown(
    session: Session, engines: Engines, clock: list[float]
) -> None:
    engine = engines["tflite"]
    engine.behaviour["lite"] = throws
    beside = Replica(session, "lite", 1)
    for tries, cooldown_s in ((1, 30), (2, 60)):
        np.testing.assert_array_equal(beside.run({"x": X})["y"], 2 * X)
        clock[0] += cooldown_s - 1
        np.testing.assert_array_equal(beside.run({"x": X})["y"], 2 * X)
        assert len(engine.loaded) == tries
        clock[0] += 1
        if tries == 1:  # it still fails on the golden vector, or on zeros
            engine.refused["lite"] = MemoryError("no more")
            until(beside, lambda: beside.failed == "MemoryError: no more")
            engine.loaded.append("refused")
            engine.refused.clear()
            engine.behaviour["lite"] = doubled
    until(beside, lambda: not beside.failed)
    np.testing.assert_array_equal(beside.run({"x": X})["y"], 2 * X)
    runs, loaded = session.history, len(engine.loaded)
    beside.close()
    assert engine.closed == 2
    clock[0] += 10_000
    np.testing.assert_array_equal(beside.run({"x": X})["y"], 2 * X)
    assert (runs, len(engine.loaded)) == ((), loaded)


def test_one_missed_deadline_costs_a_worker_its_cooldown_only(engines: Engines, clock: list[float]) -> None:
    let_go = threading.Event()
    slow = list[bool]()

    def hangs(feeds: Mapping[str, Array]) -> dict[str, Array]:
        if slow:
            slow.clear()
            let_go.wait(60)
        return doubled(feeds)

    engines["tflite"].behaviour["lite"] = hangs
    with Session(
        small_bundle([variant("onnx", "ort"), variant("lite", "tflite")]), deadline_ms=1000
    ) as timely:
        beside = Replica(timely, "lite", 1)
        slow.append(True)
        np.testing.assert_array_equal(beside.run({"x": X})["y"], 2 * X)
        assert beside.failed.startswith("no result after")
        clock[0] += 30
        loaded = len(engines["tflite"].loaded)
        np.testing.assert_array_equal(beside.run({"x": X})["y"], 2 * X)
        assert beside._retry is None  # its run has not returned
        let_go.set()
        until(beside, lambda: not beside.failed)
        assert len(engines["tflite"].loaded) == loaded + 1
        beside.close()


def test_an_input_that_is_not_finite_costs_the_replica_nothing(session: Session, engines: Engines) -> None:
    beside = Replica(session, "lite", 1)
    with pytest.raises(NonFiniteOutputError, match=r"^lite: 6 of 6 values of output y are NaN or infinite\n"):
        beside.run({"x": X * np.float32(np.nan)})
    assert (beside.failed, engines["tflite"].closed) == ("", 0)
    np.testing.assert_array_equal(beside.run({"x": X})["y"], 2 * X)
    beside.close()
