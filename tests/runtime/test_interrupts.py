"""Ctrl-C at any moment: no wrong answer, no deadlock."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import TimeoutError as Late
from functools import partial
from types import FrameType
from typing import Any

import numpy as np
import pytest

from edgekit.errors import EngineError
from edgekit.runtime import Session
from edgekit.runtime.deadline.watchdog import WatchedRunner
from edgekit.runtime.scheduling.pending import Pending
from edgekit.system.interrupts import Background, Notifier
from edgekit.tensor_spec import Array
from tests.fixtures.bundles import X, small_bundle, variant
from tests.fixtures.fake_engines import Engines, FakeRunner, change, doubled, throws
from tests.runtime.interrupted import MODES, in_child

needs_timer = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there is no setitimer")


@needs_timer
@pytest.mark.needs_ort
@pytest.mark.needs_tokenizers
@pytest.mark.parametrize(
    ("mode", "raised", "count"),
    [(mode, "KeyboardInterrupt", 800) for mode in MODES]
    + [(mode, raised, 200) for mode in MODES for raised in ("Alarm", "TimeoutError")],
)
def test_random_interrupts(mode: str, raised: str, count: int) -> None:
    outcomes = in_child(mode, count, seed=3, raised=raised)
    assert outcomes["interrupts"] >= count
    assert outcomes["right in peace"] == 100
    assert outcomes["right"] > 0
    assert outcomes["wrong"] == outcomes["wrong in peace"] == outcomes["swallowed"] == 0
    if not mode.startswith("falling"):
        assert outcomes["NoVariantError"] == 0


class Alarm(Exception):  # noqa: N818
    """As an app's own."""


class Handler:
    """Signal handlers of every kind; each raises Alarm."""

    def __call__(self, number: int, frame: FrameType | None) -> None:
        raise Alarm

    def method(self, number: int, frame: FrameType | None) -> None:
        self(number, None)


def any_arguments(*given: Any) -> None:
    raise Alarm


def removes_itself(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    raise Alarm


def with_another_first(text: str, number: int, frame: FrameType | None) -> None:
    raise Alarm


HANDLERS: dict[str, Any] = {
    "any arguments": any_arguments,
    "removes itself": removes_itself,
    "an object": Handler(),
    "a method": Handler().method,
    "partial": partial(with_another_first, "text"),
    "lambda": lambda *given: next(iter_raising()),
}


def iter_raising() -> Iterator[None]:
    raise Alarm
    yield


def interrupts_itself(given: Mapping[str, Array]) -> dict[str, Array]:
    signal.raise_signal(signal.SIGALRM)
    return doubled(given)


def says_it_failed(given: Mapping[str, Array]) -> dict[str, Array]:
    try:
        return interrupts_itself(given)
    except Exception:  # as targets do, whose engines raise a dozen classes
        raise EngineError("the engine failed to run") from None


def in_a_generator(given: Mapping[str, Array]) -> dict[str, Array]:
    return {"y": sum(interrupts_itself(given)["y"] for _ in range(1))}  # type: ignore[dict-item]


@needs_timer
@pytest.mark.parametrize("deadline_ms", [None, 60_000.0])
@pytest.mark.parametrize("engine", [interrupts_itself, says_it_failed, in_a_generator])
@pytest.mark.parametrize("handler", HANDLERS)
def test_what_a_handler_of_the_app_raises_is_the_apps(
    engines: Engines, handler: str, engine: Any, deadline_ms: float | None
) -> None:
    bundle = small_bundle([variant("onnx", "ort", p50_ms=7.0), variant("lite", "tflite", p50_ms=10.0)])
    before = signal.signal(signal.SIGALRM, HANDLERS[handler])
    try:
        with Session(bundle, threads=1, deadline_ms=deadline_ms) as session:
            runner = session.runner._runner if isinstance(session.runner, WatchedRunner) else session.runner
            assert isinstance(runner, FakeRunner)
            runner.behaviour = engine
            with pytest.raises(Alarm):
                session.run({"x": X})
            runner.behaviour = doubled
            np.testing.assert_array_equal(session.run({"x": X})["y"], 2 * X)
            assert (session.active.variant, session.history) == ("onnx", ())
            assert engines["ort"].loaded == ["onnx"]
    finally:
        signal.signal(signal.SIGALRM, before)


@needs_timer
def test_an_engine_that_fails_while_the_app_handles_its_own_is_at_fault(engines: Engines) -> None:
    """The app's exception is the context of what the engine raises, and is not raised again."""
    bundle = small_bundle([variant("onnx", "ort", p50_ms=7.0), variant("lite", "tflite", p50_ms=10.0)])
    before = signal.signal(signal.SIGALRM, any_arguments)
    try:
        with Session(bundle, threads=1) as session:
            change(session, throws)
            try:
                signal.raise_signal(signal.SIGALRM)
            except Alarm:
                np.testing.assert_array_equal(session.run({"x": X})["y"], 2 * X)
            assert [hop.reason for hop in session.history] == ["RuntimeError: kernel died"]
    finally:
        signal.signal(signal.SIGALRM, before)


@needs_timer
def test_an_apps_exception_while_it_loads_is_raised(engines: Engines) -> None:
    """Also where it is one that loading expects: a TimeoutError is an OSError."""
    bundle = small_bundle([variant("onnx", "ort", p50_ms=7.0), variant("lite", "tflite", p50_ms=10.0)])

    def late(*given: Any) -> None:
        raise TimeoutError("the app's own")

    def interrupted_load(*given: Any) -> FakeRunner:
        signal.raise_signal(signal.SIGALRM)
        return opened(*given)

    before = signal.signal(signal.SIGALRM, late)
    opened = engines["ort"].open_runner
    try:
        engines["ort"].open_runner = interrupted_load  # type: ignore[method-assign, assignment]
        with pytest.raises(TimeoutError, match="the app's own"):
            Session(bundle, threads=1)
        engines["ort"].open_runner = opened  # type: ignore[method-assign]
        with Session(bundle, threads=1) as session:
            assert (session.active.variant, session.history) == ("onnx", ())
    finally:
        signal.signal(signal.SIGALRM, before)


def interrupted_once(given: Mapping[str, Array]) -> dict[str, Array]:
    raise KeyboardInterrupt


@pytest.fixture
def session(engines: Engines) -> Iterator[Session]:
    bundle = small_bundle([variant("onnx", "ort", p50_ms=7.0), variant("lite", "tflite", p50_ms=10.0)])
    with Session(bundle, threads=1) as session:
        yield session


def test_an_interrupt_in_the_middle_of_a_fallback_begins_anew(
    engines: Engines, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(given: Mapping[str, Array]) -> dict[str, Array]:
        raise RuntimeError("kernel died")

    engines["tflite"].behaviour["lite"] = interrupted_once
    session.runner.run = dies  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyboardInterrupt):
        session.run({"x": X})  # onnx has failed, lite is interrupted in its first run
    engines["tflite"].behaviour["lite"] = doubled
    np.testing.assert_array_equal(session.run({"x": X})["y"], 2 * X)
    assert session.active.variant == "lite"
    assert engines["tflite"].loaded == ["lite", "lite"]
    assert [hop.reason for hop in session.fallbacks] == ["RuntimeError: kernel died"]


def test_who_is_interrupted_while_closing_closes_again(
    engines: Engines, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    future = session.run_async({"x": X})
    np.testing.assert_array_equal(future.result(20)["y"], 2 * X)
    with monkeypatch.context() as patch:
        patch.setattr(Background, "join", lambda *_: interrupted_once({}))
        with pytest.raises(KeyboardInterrupt):
            session.close()
    session.close()
    assert session.state == "closed"
    assert engines["ort"].closed == 1


def test_a_thread_told_of_news_wakes_even_where_the_first_to_tell_was_interrupted() -> None:
    notifier = Notifier()
    waiters = [notifier.waiter() for _ in range(3)]
    waiters[0].release()  # told, and then interrupted
    notifier.notify()
    assert all(waiter.acquire(blocking=False) for waiter in waiters)
    notifier.notify()
    assert not any(waiter.acquire(blocking=False) for waiter in waiters)


def test_an_answer_that_does_not_come_in_time_leaves_nobody_waiting() -> None:
    pending = Pending()
    for _ in range(3):
        with pytest.raises(Late):
            pending.result(timeout=0.001)
        with pytest.raises(Late):
            pending.exception(timeout=0)
    assert pending._condition.notifier._waiters == []
    thread = Background(lambda: pending.set_result({"y": X}), "answering")
    assert pending.result(20)["y"] is X
    assert pending.exception() is None
    thread.join()
