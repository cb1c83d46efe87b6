"""A run that takes too long is answered by the fallback, within the deadline."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from edgekit.errors import EngineError, NoVariantError, UsageError
from edgekit.runtime import Session
from edgekit.runtime.deadline.deadline import ABANDONED_LIMIT
from edgekit.runtime.deadline.watchdog import WatchedRunner, cutoff_s
from edgekit.tensor_spec import Array
from tests.fixtures.bundles import X, small_bundle, variant
from tests.fixtures.fake_engines import Engines, FakeRunner, doubled, throws

DEADLINE_MS, LONG_MS = 1000.0, 5000.0
"""The second one if a run that does not hang must be in time, also on a busy machine."""
VARIANTS = [variant("onnx", "ort", p50_ms=7.0), variant("lite", "tflite", p50_ms=10.0)]


class Hang:
    """A behaviour that hangs in runs of negative inputs until it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.inside = 0

    def __call__(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        if feeds["x"][0, 0] < 0:
            self.inside += 1
            self.let_go.wait(20)  # not for ever: without the limit a test fails and does not hang
            self.inside -= 1
        return doubled(feeds)


@pytest.fixture
def hang() -> Iterator[Hang]:
    hang = Hang()
    yield hang
    hang.let_go.set()


def until(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.01)


def serves(session: Session) -> str:
    """The variant that answered one more request."""
    session.run({"x": X})
    return session.active.variant


def watched_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "edgekit-watched"]


def test_a_hanging_variant_is_answered_by_the_fallback_in_time(engines: Engines, hang: Hang) -> None:
    engines["ort"].behaviour["onnx"] = hang
    with Session(small_bundle(VARIANTS), deadline_ms=LONG_MS) as session:
        assert engines["tflite"].loaded == ["lite"]  # it stands by, loaded
        np.testing.assert_array_equal(session.run({"x": X})["y"], 2 * X)
        np.testing.assert_array_equal(session.run({"x": -1 - X})["y"], -2 - 2 * X)
        assert hang.inside == 1
        assert session.active.variant == "lite"
        (hop,) = session.fallbacks
        assert (hop.from_, hop.to) == ("onnx", "lite")
        after_ms = re.fullmatch(r"no result after (\d+) ms", hop.reason)
        assert after_ms is not None
        assert LONG_MS / 2 <= int(after_ms[1]) < LONG_MS  # less what the fallback needs
        assert session.hanging == 1
        (note,) = session.notes
        assert re.sub(r"its \d+ MB", "its memory", note) == (
            "onnx timed out and was abandoned; its memory and its thread are freed when it returns"
        )
        assert engines["ort"].closed == 0
        hang.let_go.set()
        until(lambda: session.hanging == 0)
        assert engines["ort"].closed == 1  # it closed itself
        assert engines["tflite"].loaded == ["lite"]
    until(lambda: not watched_threads())
    assert engines["tflite"].closed == 1


def test_without_a_deadline_there_is_no_thread(engines: Engines) -> None:
    before = set(threading.enumerate())
    with Session(small_bundle(VARIANTS)) as session:
        session.run({"x": X})
        assert set(threading.enumerate()) <= before
        assert engines["tflite"].loaded == []
        assert session.hanging == 0


@pytest.fixture
def soon_hung(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has not answered after 200 ms hangs."""
    monkeypatch.setattr("edgekit.runtime.deadline.deadline.HANG_S", 0.2)
    monkeypatch.setattr("edgekit.runtime.deadline.deadline.HANG_RATIO", 0.0)


def test_the_only_variant_hangs_and_answers_again_once_it_returned(
    engines: Engines, hang: Hang, soon_hung: None
) -> None:
    engines["ort"].behaviour["onnx"] = hang
    with Session(small_bundle(VARIANTS[:1]), deadline_ms=100) as session:
        with pytest.raises(NoVariantError, match=r"\n  onnx  it hangs: no result after 0\.2 s\n"):
            session.run({"x": -1 - X})
        with pytest.raises(NoVariantError):  # at once: nothing is waited for, or loaded beside what hangs
            session.run({"x": X})
        assert (hang.inside, session.hanging, engines["ort"].loaded) == (1, 1, ["onnx"])
        hang.let_go.set()
        until(lambda: session.hanging == 0)
        np.testing.assert_array_equal(session.run({"x": X})["y"], 2 * X)  # no cooldown has passed
        assert engines["ort"].loaded == ["onnx", "onnx"]


class Overdue:
    """A behaviour that answers negative inputs once the session has missed its deadline, or is let go."""

    def __init__(self, let_go: threading.Event | None = None) -> None:
        self.session: Session | None = None
        self.let_go = let_go

    def __call__(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        if feeds["x"][0, 0] < 0 and self.session is not None:
            active = self.session._chain.runner
            assert isinstance(active, WatchedRunner)
            until(lambda: active.timed_out)
            if self.let_go is not None:
                assert self.let_go.wait()  # for ever, unless a test ends: whoever waits for it hangs
        return doubled(feeds)


class Answered(threading.Event):
    """Set once a runner has answered what it was asked after this was made."""

    def __init__(self, runner: WatchedRunner) -> None:
        super().__init__()
        self.runner, self.asked = runner, runner.state.asked

    def wait(self, timeout: float | None = None) -> bool:
        until(lambda: self.runner.state.answered > self.asked)
        return True


def standby_of(session: Session) -> WatchedRunner | None:
    assert session._chain.deadline is not None
    return session._chain.deadline._standby


def test_a_late_answer_is_answered_late(engines: Engines) -> None:
    overdue = engines["ort"].behaviour["onnx"] = Overdue()
    with Session(small_bundle(VARIANTS[:1]), deadline_ms=50) as session:
        overdue.session = session
        assert (session.late, session.notes) == (0, ())
        for number in range(1, 6):
            np.testing.assert_array_equal(session.run({"x": -number - X})["y"], -2 * number - 2 * X)
            assert (session.active.variant, session.late, session.hanging) == ("onnx", number, 0)
        (note,) = session.notes
        assert re.fullmatch(r"5 answers were later than the deadline of 50 ms; the latest took \d+ ms", note)
        assert (session.fallbacks, session.history, engines["ort"].loaded) == ((), (), ["onnx"])
        assert (session.run({"x": X})["y"] == 2 * X).all()
        assert session.late == 5


def test_the_first_of_two_late_answers_is_taken(engines: Engines) -> None:
    slower = threading.Event()
    late = engines["ort"].behaviour["onnx"] = Overdue()
    later = engines["tflite"].behaviour["lite"] = Overdue(slower)
    with Session(small_bundle(VARIANTS), deadline_ms=50) as session:
        late.session = later.session = session
        np.testing.assert_array_equal(session.run({"x": -1 - X})["y"], -2 - 2 * X)
        assert (session.active.variant, session.fallbacks, session.history) == ("onnx", (), ())
        slower.set()
        assert (engines["ort"].loaded, engines["tflite"].loaded) == (["onnx"], ["lite"])


def test_a_late_variant_stands_by_once_it_returned(engines: Engines) -> None:
    """What timed out is no broken engine: where no other is in time, it answers again at once."""
    slower = threading.Event()
    onnx = engines["ort"].behaviour["onnx"] = Overdue(slower)
    lite = engines["tflite"].behaviour["lite"] = Overdue()
    with Session(small_bundle(VARIANTS), deadline_ms=50) as session:
        onnx.session = lite.session = session
        session.run({"x": -1 - X})
        assert (session.active.variant, session.hanging) == ("lite", 1)
        slower.set()
        onnx.let_go, lite.let_go = None, threading.Event()  # now the other one is the slower one
        until(lambda: (session.run({"x": X}), standby_of(session))[1] is not None)
        np.testing.assert_array_equal(session.run({"x": -1 - X})["y"], -2 - 2 * X)
        assert (session.active.variant, session.fallbacks) == ("onnx", ())
        assert [(hop.from_, hop.to) for hop in session.history] == [("onnx", "lite"), ("lite", "onnx")]
        lite.let_go.set()
        until(lambda: session.hanging == 0)


def test_a_standby_that_fails_beside_a_late_variant_is_passed(engines: Engines) -> None:
    overdue = engines["ort"].behaviour["onnx"] = Overdue()
    with Session(small_bundle(VARIANTS), deadline_ms=50) as session:
        standby = standby_of(session)
        assert standby is not None
        assert isinstance(standby._runner, FakeRunner)
        standby._runner.behaviour = throws
        overdue.session, overdue.let_go = session, Answered(standby)
        np.testing.assert_array_equal(session.run({"x": -1 - X})["y"], -2 - 2 * X)
        assert (session.active.variant, session.fallbacks) == ("onnx", ())
        assert session._chain._health.failures["lite"].reason == "RuntimeError: kernel died"


def test_what_hangs_is_not_tried_again_for_ever(
    engines: Engines, hang: Hang, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("edgekit.runtime.fallback.variant_health.monotonic", lambda: now[0])
    engines["ort"].behaviour["onnx"] = hang
    with Session(small_bundle(VARIANTS), deadline_ms=100) as session:
        for hanging in range(1, ABANDONED_LIMIT + 1):
            session.run({"x": -1 - X})
            assert (session.active.variant, session.hanging) == ("lite", hanging)
            now[0] += 3600
            if hanging < ABANDONED_LIMIT:
                until(lambda: serves(session) == "onnx")
        for _ in range(20):
            session.run({"x": X})
            time.sleep(0.01)
        assert (session.active.variant, hang.inside) == ("lite", ABANDONED_LIMIT)
        hang.let_go.set()
        until(lambda: serves(session) == "onnx")


def test_a_variant_that_hangs_in_its_first_run_is_passed(
    engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgekit.runtime.deadline.deadline.FIRST_RUN_S", 0.2)
    gone = threading.Event()
    engines["ort"].behaviour["onnx"] = lambda feeds: (gone.wait(60), doubled(feeds))[1]
    with Session(small_bundle(VARIANTS), deadline_ms=100) as session:
        assert session.active.variant == "lite"
        assert session.fallbacks[0].reason == "no result after 200 ms"
        assert session.hanging == 1
        gone.set()
        until(lambda: session.hanging == 0)


def test_a_variant_that_hangs_while_it_is_loaded_is_passed(
    engines: Engines, hang: Hang, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgekit.runtime.deadline.deadline.LOAD_S", 2.0)  # the other one loads in it
    gone = hang.let_go
    open_runner = engines["ort"].open_runner
    monkeypatch.setattr(engines["ort"], "open_runner", lambda *given: (gone.wait(60), open_runner(*given))[1])
    with Session(small_bundle(VARIANTS), deadline_ms=100) as session:
        np.testing.assert_array_equal(session.run({"x": X})["y"], 2 * X)
        assert [(hop.from_, hop.to, hop.reason) for hop in session.fallbacks] == [
            ("onnx", "lite", "it did not load within 2 s")
        ]
        assert session.notes == (
            "onnx timed out and was abandoned; its memory and its thread are freed when it returns",
        )
        assert session.hanging == 1
        gone.set()
        until(lambda: session.hanging == 0)
        assert engines["ort"].closed == 1
    gone.clear()
    with pytest.raises(EngineError) as error:
        Session(small_bundle(VARIANTS), deadline_ms=100, strict=True)
    assert str(error.value) == "onnx does not run: it did not load within 2 s; strict forbids fallbacks"
    gone.set()
    until(lambda: not watched_threads())


def test_the_fallback_throws_too(engines: Engines, hang: Hang, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgekit.runtime.deadline.deadline.HANG_S", 1.0)  # the first one may still answer
    monkeypatch.setattr("edgekit.runtime.deadline.deadline.HANG_RATIO", 1.0)
    engines["ort"].behaviour["onnx"] = hang
    variants = [*VARIANTS, variant("lite16", "tflite", p50_ms=11.0)]
    with Session(small_bundle(variants), deadline_ms=DEADLINE_MS) as session:
        standby = session._chain.deadline._standby  # type: ignore[union-attr]
        assert isinstance(standby, WatchedRunner)
        assert isinstance(standby._runner, FakeRunner)
        standby._runner.behaviour = throws
        np.testing.assert_array_equal(session.run({"x": -1 - X})["y"], -2 - 2 * X)
        assert [hop.to for hop in session.fallbacks] == ["lite", "lite16"]


def test_the_next_one_stands_by_when_a_variant_cannot(engines: Engines, hang: Hang) -> None:
    engines["ort"].behaviour["onnx"] = hang
    engines["tflite"].refused["lite"] = EngineError("no such kernel")
    variants = [*VARIANTS, variant("lite16", "tflite", p50_ms=11.0)]
    with Session(small_bundle(variants), deadline_ms=DEADLINE_MS) as session:
        assert engines["tflite"].loaded == ["lite16"]
        session.run({"x": -1 - X})
        assert hang.inside == 1
        assert [(hop.to, hop.reason[:9]) for hop in session.fallbacks] == [
            ("lite", "no result"),
            ("lite16", "no such k"),
        ]


def test_strict_says_that_it_was_late(engines: Engines, hang: Hang) -> None:
    engines["ort"].behaviour["onnx"] = hang
    with Session(small_bundle(VARIANTS), deadline_ms=100, strict=True) as session:
        with pytest.raises(EngineError) as error:
            session.run({"x": -1 - X})
        assert str(error.value) == ("onnx does not run: no result after 100 ms; strict forbids fallbacks")
        np.testing.assert_array_equal(session.run({"x": X})["y"], 2 * X)  # loaded anew
        assert engines["ort"].loaded == ["onnx", "onnx"]
        assert engines["tflite"].loaded == []


@pytest.mark.parametrize("deadline_ms", [0, -1, "5", True, float("nan")])
def test_a_deadline_is_a_positive_number(engines: Engines, deadline_ms: Any) -> None:
    with pytest.raises(UsageError) as error:
        Session(small_bundle(VARIANTS), deadline_ms=deadline_ms)
    assert str(error.value) == f"deadline_ms must be a number above 0, not {deadline_ms!r}"


def test_the_fallback_gets_its_share_of_the_deadline() -> None:
    assert cutoff_s(0.1, None) == 0.1
    assert cutoff_s(0.1, 0.01) == pytest.approx(0.075)
    assert cutoff_s(0.1, 0.2) == 0.05  # it cannot be in time: the first variant has half in any case
