"""Requests in a line: futures, the most urgent first, bounded, cancelled, never run when it is too late."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError, Future

import numpy as np
import pytest

from edgekit.errors import BusyError, NoVariantError, UsageError
from edgekit.processing.latency_contract import Latency
from edgekit.runtime import Session
from edgekit.runtime.latency.budget import Budget
from edgekit.runtime.metrics.metrics import Metrics
from edgekit.runtime.scheduling import request_queue as rooms
from edgekit.runtime.scheduling.request_queue import Requests
from edgekit.tensor_spec import Array
from tests.fixtures.bundles import X, small_bundle, variant
from tests.fixtures.fake_engines import Engines, change, doubled, throws
from tests.fixtures.ort_bundles import DOUBLES, onnx_bytes, ort_bundle
from tests.fixtures.threads import no_new_threads


class Gate:
    """An engine's behaviour that waits until it is let go, and tells in which order it was asked."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.running, self.open = threading.Event(), threading.Event()

    def __call__(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        self.asked.append(float(feeds["x"][0, 0]))
        self.running.set()
        assert self.open.wait(10)
        return doubled(feeds)


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    with no_new_threads():
        yield


@pytest.fixture
def session(engines: Engines) -> Iterator[Session]:
    with Session(small_bundle([variant("onnx", "ort")]), threads=1) as session:
        yield session


@pytest.fixture
def gate(session: Session) -> Iterator[Gate]:
    gate = Gate()
    change(session, gate)
    yield gate
    gate.open.set()


def feeds(value: float) -> dict[str, Array]:
    return {"x": np.full_like(X, value)}


def outcome(future: Future[dict[str, Array]]) -> float:
    return float(future.result(10)["y"][0, 0])


def test_many_callers_get_their_own_answers(session: Session) -> None:
    futures = [session.run_async(feeds(n)) for n in range(50)]
    assert [outcome(future) for future in futures] == [2.0 * n for n in range(50)]


def test_the_most_urgent_comes_first(session: Session, gate: Gate) -> None:
    with Requests(session) as requests:
        futures = [requests.run_async(feeds(0))]
        assert gate.running.wait(10)
        for value, deadline_ms in ((1, None), (2, 60_000), (3, 30_000), (4, None), (5, 30_000)):
            futures.append(requests.run_async(feeds(value), deadline_ms))
        assert requests.counts()["waiting"] == 5
        gate.open.set()
        assert [outcome(future) for future in futures] == [0, 2, 4, 6, 8, 10]
        assert gate.asked == [0, 3, 5, 2, 1, 4]


def test_who_is_too_late_is_not_run(session: Session, gate: Gate) -> None:
    with Requests(session) as requests:
        first = requests.run_async(feeds(0), 60_000)
        assert gate.running.wait(10)
        late = requests.run_async(feeds(1), 0.001)
        gate.open.set()
        with pytest.raises(BusyError, match=r"^not run: its deadline had passed after \d+ ms in the queue$"):
            late.result(10)
        assert outcome(first) == 0
        assert gate.asked == [0]
        assert requests.counts() == {
            "answered": 1,
            "together": 0,
            "runs": 1,
            "overdue": 1,
            "refused": 0,
            "cancelled": 0,
            "waiting": 0,
        }


def test_what_waits_is_bounded_and_who_is_cancelled_leaves_room(session: Session, gate: Gate) -> None:
    with Requests(session, limit=2) as requests:
        running = requests.run_async(feeds(0))
        assert gate.running.wait(10)
        one, two = (requests.run_async(feeds(n)) for n in (1, 2))
        with pytest.raises(BusyError) as error:
            requests.run_async(feeds(3))
        assert str(error.value) == "the queue is full (2 requests); retry later, or raise limit"
        assert one.cancel()
        assert not running.cancel()
        four = requests.run_async(feeds(4))
        gate.open.set()
        assert [outcome(future) for future in (running, two, four)] == [0, 4, 8]
        assert gate.asked == [0, 2, 4]
        with pytest.raises(CancelledError):
            one.result(10)
        assert (requests.counts()["refused"], requests.counts()["cancelled"]) == (1, 1)


def test_closing_cancels_what_waits_and_lets_what_runs_end(session: Session, gate: Gate) -> None:
    running = session.run_async(feeds(0))
    assert gate.running.wait(10)
    waiting = session.run_async(feeds(1))
    threading.Timer(0.05, gate.open.set).start()
    session.close()
    assert outcome(running) == 0
    assert waiting.cancelled()
    with pytest.raises(UsageError, match=r"is closed; open a new one to run$"):
        session.run_async(feeds(2))


def test_an_error_is_its_requests_own(session: Session, engines: Engines) -> None:
    def fails_at_one(feeds: Mapping[str, Array]) -> dict[str, Array]:
        return throws(feeds) if feeds["x"][0, 0] == 1 else doubled(feeds)

    engines["ort"].behaviour["onnx"] = fails_at_one
    change(session, fails_at_one)
    with Requests(session) as requests:
        with pytest.raises(NoVariantError):
            requests.run(feeds(1))
        assert requests.run(feeds(2))["y"][0, 0] == 4
        refused = [({}, "input x is missing"), ({"x": X[0]}, "input x has shape 6"), ([X], "feeds is a list")]
        for wrong, text in refused:
            with pytest.raises(UsageError, match=f"^{text}"):  # at once, not in the thread
                requests.run_async(wrong)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=r"^deadline_ms must be a number above 0, not 0$"):
            requests.run_async(feeds(1), 0)
    with pytest.raises(UsageError) as error:
        requests.run_async(feeds(1))
    assert str(error.value) == "the request queue is closed; open a new one to run"
    for limit, delay_ms in ((0, 0.0), (1, -1.0)):
        with pytest.raises(UsageError, match=r"^limit must be a whole number from 1, and delay_ms "):
            Requests(session, limit, delay_ms=delay_ms)


def test_a_callback_may_ask_again_and_close(session: Session) -> None:
    with Requests(session) as requests:
        answers: list[float] = []
        done = threading.Event()

        def again(future: Future[dict[str, Array]]) -> None:
            answers.append(outcome(future))
            if len(answers) < 5:
                requests.run_async(feeds(answers[-1])).add_done_callback(again)
            else:
                requests.close()
                done.set()

        requests.run_async(feeds(1)).add_done_callback(again)
        assert done.wait(10)
        assert answers == [2, 4, 8, 16, 32]


def test_asyncio_awaits_it(session: Session) -> None:
    async def ask() -> list[float]:
        futures = [asyncio.wrap_future(session.run_async(feeds(n))) for n in range(10)]
        return [float(outputs["y"][0, 0]) for outputs in await asyncio.gather(*futures)]

    assert asyncio.run(ask()) == [2.0 * n for n in range(10)]


def test_what_happens_is_told(session: Session, gate: Gate) -> None:
    metrics = Metrics(session)
    with Requests(session, limit=2, metrics=metrics) as requests:
        futures = [requests.run_async(feeds(0))]
        assert gate.running.wait(10)
        futures.append(requests.run_async(feeds(1)))
        late = requests.run_async(feeds(2), 0.001)
        with pytest.raises(BusyError):
            requests.run_async(feeds(3))
        gate.open.set()
        assert [outcome(future) for future in futures] == [0, 2]
        with pytest.raises(BusyError):
            late.result(10)
    told = metrics.snapshot()
    assert told["outcomes"] == {"refused": 1, "overdue": 1, "ok": 2}
    stages = {entry["stage"]: entry["count"] for entry in told["stages"]}
    assert stages == {"waiting": 2, "infer": 2, "end_to_end": 2}


def test_the_thread_ends_when_nobody_asks(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "IDLE_S", 0.01)
    for n in range(3):
        with no_new_threads():
            assert outcome(session.run_async(feeds(n))) == 2 * n


def test_before_a_budget(session: Session) -> None:
    with Budget(session, Latency(1000.0)) as budget, Requests(budget) as requests:
        assert requests.run(feeds(3))["y"][0, 0] == 6


@pytest.mark.needs_ort
def test_a_real_engine_answers_as_it_does_without() -> None:
    random = np.random.default_rng(0)
    given = [{"x": random.normal(size=(1, 6)).astype(np.float32)} for _ in range(20)]
    with Session(ort_bundle(good=onnx_bytes(DOUBLES)), threads=1) as session:
        futures = [session.run_async(each, deadline_ms=60_000) for each in given]
        for each, future in zip(given, futures, strict=True):
            assert future.result(10)["y"].tobytes() == session.run(each)["y"].tobytes()


def test_a_more_urgent_class_goes_first_and_makes_room(session: Session, gate: Gate) -> None:
    with Requests(session, limit=3) as requests:
        first = requests.run_async(feeds(0), priority=5)
        assert gate.running.wait(10)
        low = [requests.run_async(feeds(10 + n), 60_000 - n, priority=5) for n in range(3)]
        high = [requests.run_async(feeds(n), 60_000, priority=1) for n in (1, 2)]
        with pytest.raises(BusyError, match="the queue is full"):
            requests.run_async(feeds(9), 60_000, priority=5)
        # The last of the lower class left: those with the later deadlines.
        for displaced in low[:2]:
            with pytest.raises(BusyError, match="the queue is full of more urgent requests"):
                displaced.result(10)
        gate.open.set()
        assert [outcome(future) for future in (first, *high, low[2])] == [0, 2, 4, 24]
        assert requests.counts()["refused"] == 3
    assert gate.asked == [0, 1, 2, 12]


def test_what_would_be_late_is_refused_at_once(session: Session, gate: Gate) -> None:
    with Requests(session, shed=True) as requests:
        requests._one_s.took(1.0)  # a run takes a second, as far as it is known
        begun = requests.run_async(feeds(0), 60_000)
        assert gate.running.wait(10)
        waiting = requests.run_async(feeds(1), 60_000)
        with pytest.raises(BusyError, match="1 requests wait, longer than 500 ms"):
            requests.run_async(feeds(2), 500)
        assert requests.expected_s() > 1
        ahead = requests.run_async(feeds(3), 30_000)  # the queue is short enough for this one
        gate.open.set()
        assert [outcome(future) for future in (begun, ahead, waiting)] == [0, 6, 2]
    assert gate.asked == [0, 3, 1]


def test_a_wait_that_hardly_fits_is_refused_at_once(session: Session, gate: Gate) -> None:
    """Estimates are never exact: a request that ends in the queue has waited for nothing."""
    with Requests(session, shed=True) as requests:
        requests._one_s.took(100.0)
        begun = requests.run_async(feeds(0), 600_000)
        assert gate.running.wait(10)
        estimate_ms = 1000 * (100.0 + requests._one_s.upper_s)
        with pytest.raises(BusyError, match="0 requests wait, longer than"):
            requests.run_async(feeds(1), 1.1 * estimate_ms)
        fits = requests.run_async(feeds(2), 1.3 * estimate_ms)
        gate.open.set()
        assert [outcome(future) for future in (begun, fits)] == [0, 4]


def test_one_slow_run_does_not_end_all_others(session: Session) -> None:
    with Requests(session, shed=True) as requests:
        requests._one_s.took(100.0)
        for n in range(3):  # each comes to an idle queue
            assert outcome(requests.run_async(feeds(n), 30_000)) == 2 * n
        assert requests._one_s.mean_s < 100


def test_the_estimate_reads_the_running_request_once(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run may end between any two instructions of the thread that estimates."""
    queue = Requests(session)
    reads = iter([1.0])
    ended = property(lambda _: next(reads, None), lambda *_: None)
    monkeypatch.setattr(Requests, "_running_s", ended, raising=False)
    assert queue.expected_s() == 0.0
