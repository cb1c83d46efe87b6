"""Ctrl-C at any moment: no wrong answer, no deadlock; tests/benchmarks/bench_interrupts.py does it longer."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import TimeoutError as Late

import numpy as np
import pytest

from edgekit.runtime import Session
from edgekit.runtime.deadline.watchdog import Watched
from edgekit.runtime.scheduling.pending import Pending
from edgekit.system.interrupts import Background, Notifier
from edgekit.tensors import Array
from tests.fixtures.bundles import X, small_bundle, variant
from tests.fixtures.fake_engines import Engines, FakeEngine, FakeRunner, doubled
from tests.runtime.interrupted import MODES, in_child

needs_timer = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there is no setitimer")


@needs_timer
@pytest.mark.needs_ort
@pytest.mark.parametrize("mode", MODES)
def test_random_interrupts(mode: str) -> None:
    outcomes = in_child(mode, count=800, seed=3)
    assert outcomes["interrupts"] >= 800
    assert outcomes["right in peace"] == 100
    assert outcomes["right"] > 0
    assert outcomes["wrong"] == outcomes["wrong in peace"] == 0


def interrupted_once(given: Mapping[str, Array]) -> dict[str, Array]:
    raise KeyboardInterrupt


@pytest.fixture
def session(engines: Engines) -> Iterator[Session]:
    bundle = small_bundle([variant("onnx", "ort", p50_ms=7.0), variant("lite", "tflite", p50_ms=10.0)])
    with Session(bundle, threads=1) as session:
        yield session


def test_an_interrupt_while_an_answer_is_waited_for_is_not_the_next_ones_wait_for() -> None:
    """As Watched._wait_for was: the answer of the interrupted request comes after the interrupt."""

    class Interrupting(Watched):
        interrupt = False

        def _wait_for(self, *given: object) -> dict[str, Array]:
            if self.interrupt:
                self.interrupt = False
                raise KeyboardInterrupt
            return super()._wait_for(*given)  # type: ignore[arg-type]

    watched = Interrupting(lambda: FakeRunner(FakeEngine("ort"), doubled), limit_s=20)
    watched.load(limit_s=20)
    watched.interrupt = True
    with pytest.raises(KeyboardInterrupt):
        watched.run({"x": X})
    for number in range(3):
        np.testing.assert_array_equal(watched.run({"x": X + number})["y"], 2 * (X + number))
    watched.close()


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
