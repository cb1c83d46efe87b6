"""Streams: every frame answered once, in order, by reference; nothing left behind, however they end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from edgekit.errors import NoVariantError, UsageError
from edgekit.runtime import Session
from edgekit.runtime.metrics.metrics import Metrics
from edgekit.runtime.streaming import parallelism
from edgekit.runtime.streaming.latest_frame import LatestFrame
from edgekit.runtime.streaming.stream import Result, Stream
from edgekit.system import timings
from edgekit.tensor_spec import Array
from tests.fixtures.bundles import X, small_bundle, variant
from tests.fixtures.fake_engines import Engines, doubled, throws
from tests.fixtures.threads import no_new_threads, until


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    with no_new_threads():
        yield


@pytest.fixture
def session(engines: Engines) -> Iterator[Session]:
    bundle = small_bundle([variant("onnx", "ort", p50_ms=7.0), variant("lite", "tflite", p50_ms=9.0)])
    with Session(bundle, threads=2) as session:
        yield session


def feeds(count: int) -> Iterator[dict[str, Array]]:
    return ({"x": np.full_like(X, n)} for n in range(count))


WAYS = pytest.mark.parametrize("workers", [1, 2, 3])


@WAYS
def test_every_frame_is_answered_once_in_order(session: Session, engines: Engines, workers: int) -> None:
    uneven = np.random.default_rng(0)

    def slow(feeds: Mapping[str, Array]) -> dict[str, Array]:
        time.sleep(float(uneven.uniform(0, 0.004)))
        return doubled(feeds)

    engines["ort"].behaviour["onnx"] = slow
    stream = session.stream(feeds(60), workers=workers)
    found = [(result.number, float(result.answer["y"][0, 0])) for result in stream]
    assert found == [(n, 2.0 * n) for n in range(60)]
    assert stream.plan is not None
    assert (stream.plan.workers, stream.notes, stream.dropped) == (workers, (), 0)
    assert engines["ort"].closed == (0 if workers == 1 else workers)
    assert next(stream, None) is None


@WAYS
def test_no_frame_is_copied_between_stages(session: Session, engines: Engines, workers: int) -> None:
    seen: dict[str, set[int]] = {"decode": set(), "engine": set(), "result": set()}
    kept: list[Any] = []  # addresses are used again when an array is freed

    def read(item: int) -> dict[str, Array]:
        frame = np.full_like(X, item)
        seen["decode"].add(frame.ctypes.data)
        kept.append(frame)
        return {"x": frame}

    def watched(feeds: Mapping[str, Array]) -> dict[str, Array]:
        seen["engine"].add(feeds["x"].ctypes.data)
        return doubled(feeds)

    engines["ort"].behaviour["onnx"] = watched
    with Session(session.bundle, threads=2) as watching:
        for result in watching.stream(range(20), decode=read, workers=workers):
            seen["result"].add(result.frame["x"].ctypes.data)
    assert len(seen["decode"]) == 20
    assert seen["decode"] == seen["engine"] == seen["result"]


@WAYS
def test_what_is_under_way_is_bounded(session: Session, workers: int) -> None:
    read: list[int] = []

    def source() -> Iterator[dict[str, Array]]:
        for number, each in enumerate(feeds(50)):
            read.append(number)
            yield each

    with session.stream(source(), workers=workers) as stream:
        next(stream)
        time.sleep(0.1)
        assert len(read) <= 1 + 2 * workers + 2


@WAYS
@pytest.mark.parametrize("where", ["source", "decode", "engine"])
def test_an_error_comes_in_its_place(session: Session, engines: Engines, workers: int, where: str) -> None:
    def source() -> Iterator[dict[str, Array]]:
        for number, each in enumerate(feeds(20)):
            if number == 7 and where == "source":
                raise SystemExit("error: the camera is gone")
            yield each

    def read(item: dict[str, Array]) -> dict[str, Array]:
        if item["x"][0, 0] == 7 and where == "decode":
            raise ValueError("no picture")
        return item

    fell_back = threading.Event()

    def refuses(feeds: Mapping[str, Array]) -> dict[str, Array]:
        return throws(feeds) if feeds["x"][0, 0] == 7 and where == "engine" else doubled(feeds)

    def refuses_last(feeds: Mapping[str, Array]) -> dict[str, Array]:
        if feeds["x"][0, 0] == 7:
            fell_back.set()
        return refuses(feeds)

    def lingering(stream: Stream) -> Iterator[Result]:
        """What was answered by the best variant, and is fetched when the session has fallen back."""
        for result in stream:
            yield result
            if result.number == 3 and where == "engine":
                assert fell_back.wait(60)

    engines["ort"].behaviour["onnx"], engines["tflite"].behaviour["lite"] = refuses, refuses_last
    found: list[int] = []
    expected: dict[str, type[BaseException]] = {
        "source": SystemExit,
        "decode": ValueError,
        "engine": NoVariantError,
    }
    with Session(session.bundle, threads=2) as refusing:
        metrics = Metrics(refusing)
        stream = refusing.stream(source(), decode=read, workers=workers, metrics=metrics)
        with pytest.raises(expected[where]):
            found.extend(result.number for result in lingering(stream))
        assert found == list(range(7))
        assert metrics.snapshot()["outcomes"] == {"ok": 7, "failed": 1}
        assert next(stream, None) is None


@WAYS
def test_a_loop_that_is_left_ends_all(session: Session, workers: int) -> None:
    ended, before = [], set(threading.enumerate())

    def source() -> Iterator[dict[str, Array]]:
        try:
            while True:
                yield {"x": X}
        finally:
            ended.append(threading.current_thread().name)

    for result in session.stream(source(), workers=workers):
        if result.number == 5:
            break
    assert len(ended) == 1
    assert set(threading.enumerate()) <= before


def test_a_stream_that_is_never_read_starts_nothing(session: Session, engines: Engines) -> None:
    before = set(threading.enumerate())
    stream = session.stream(feeds(3), workers=2)
    assert set(threading.enumerate()) <= before
    assert engines["ort"].loaded == ["onnx"]
    stream.close()
    assert next(stream, None) is None


def test_the_session_answers_for_a_worker_that_fails(session: Session, engines: Engines) -> None:
    """And falls back, explained, where the variant itself is at fault."""
    failing = threading.Event()

    def breaks(feeds: Mapping[str, Array]) -> dict[str, Array]:
        return throws(feeds) if failing.is_set() else doubled(feeds)

    engines["ort"].behaviour["onnx"] = breaks
    with Session(session.bundle, threads=2) as breaking:
        found = []
        stream = breaking.stream(feeds(30), workers=2)
        for result in stream:
            found.append(float(result.answer["y"][0, 0]))
            if result.number == 10:
                failing.set()
        assert found == [2.0 * n for n in range(30)]
        assert stream.notes == ("a worker failed, its frames run on the session: RuntimeError: kernel died",)
        assert [(hop.from_, hop.to) for hop in breaking.fallbacks] == [("onnx", "lite")]


def test_a_worker_that_cannot_load_leaves_one(session: Session, engines: Engines) -> None:
    engines["ort"].refused["onnx"] = MemoryError("no more")
    stream = session.stream(feeds(5), workers=2)
    assert len(list(stream)) == 5
    assert stream.notes == ("onnx did not load again, so one worker runs: MemoryError: no more",)


def test_workers_that_hang_are_answered_by_the_session(session: Session, engines: Engines) -> None:
    hanging, let_go = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []  # the session's own, and those of the workers

    def hangs(feeds: Mapping[str, Array]) -> dict[str, Array]:
        if threading.current_thread() not in threads:
            threads.append(threading.current_thread())
        if hanging.is_set() and threading.current_thread() is not threads[0]:
            let_go.wait(60)
        return doubled(feeds)

    engines["ort"].behaviour["onnx"] = hangs
    with Session(session.bundle, threads=2, deadline_ms=1000) as timely:
        stream = timely.stream(feeds(30), workers=2)
        found = []
        for result in stream:
            found.append(float(result.answer["y"][0, 0]))
            if result.number == 10:
                hanging.set()
        assert found == [2.0 * n for n in range(30)]
        (note,) = {note.rpartition(" ")[0].rpartition(" ")[0] for note in stream.notes}
        assert note == "a worker failed, its frames run on the session: no result after"
        assert timely.fallbacks == ()
    let_go.set()
    for thread in threads:
        thread.join(20)


@pytest.mark.parametrize("workers", [0, -1, 1.5, "2"])
def test_workers_are_a_positive_number(session: Session, workers: Any) -> None:
    with pytest.raises(UsageError) as error:
        session.stream(feeds(1), workers=workers)
    assert str(error.value) == f"workers must be a whole number from 1, not {workers!r}"


def test_feeds_that_do_not_fit_are_refused_as_by_the_session(session: Session) -> None:
    for workers in (1, 2):
        with pytest.raises(UsageError, match=r"^input x is missing; the model takes x float32 1x6$"):
            list(session.stream([{}], workers=workers))
        with pytest.raises(UsageError, match=r"^input z is unknown; "):
            list(session.stream([{"x": X, "z": X}], workers=workers))


# --- the choice ------------------------------------------------------------------------------------------


def paired(alone_s: float) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """An engine that answers at once where two runs are there at a time, and takes so long for one alone:
    what a busy machine adds to both changes nothing."""
    lock, waiting = threading.Lock(), list[threading.Event]()

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        mine = threading.Event()
        with lock:
            other = waiting.pop() if waiting else None
            if other is None:
                waiting.append(mine)
        if other is not None:
            other.set()
        elif not mine.wait(alone_s):
            with lock:
                waiting[:] = [each for each in waiting if each is not mine]
        return doubled(feeds)

    return run


def test_the_faster_way_is_chosen_and_remembered(
    session: Session, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines["ort"].behaviour["onnx"] = paired(0.05)
    compared: list[tuple[float, float]] = []
    real = parallelism.compared

    def noted(*given: Any) -> tuple[float, float]:
        compared.append(real(*given))
        return compared[-1]

    monkeypatch.setattr(parallelism, "compared", noted)
    for _ in range(2):
        with Session(session.bundle, threads=2) as choosing:
            stream = choosing.stream(feeds(4))
            assert len(list(stream)) == 4
            assert stream.plan is not None
            assert stream.plan.workers == 2
    assert len(compared) == 1
    assert engines["ort"].closed == len(engines["ort"].loaded) - 1  # all but the fixture's session


@pytest.mark.parametrize(
    ("one_ms", "newest", "workers"),
    [(8.0, False, 1), (10.0, False, 2), (12.0, False, 2), (10.0, True, 1), (12.0, True, 2)],
)
def test_parallel_runs_that_are_as_fast_are_chosen_but_for_a_live_source(
    session: Session, monkeypatch: pytest.MonkeyPatch, one_ms: float, newest: bool, workers: int
) -> None:
    monkeypatch.setattr(parallelism, "compared", lambda *_: (one_ms, 10.0))
    for _ in range(2):  # measured, and remembered
        plan = parallelism.choose_parallelism(session, None, newest)
        assert plan.workers == workers
        plan.close()


def test_one_thread_is_not_exceeded_unasked(session: Session, engines: Engines) -> None:
    with Session(session.bundle, threads=1) as small:
        stream = small.stream(feeds(4))
        list(stream)
        assert stream.plan is not None
        assert (stream.plan.workers, stream.plan.threads) == (1, 1)
    assert engines["ort"].threads == [2, 1]
    assert not timings.timings_folder().exists()


# --- metrics and the newest frame --------------------------------------------------------------------------


@WAYS
def test_the_stages_of_a_result_are_its_whole_time(session: Session, workers: int) -> None:
    metrics = Metrics(session)

    def read(item: Any) -> Any:
        time.sleep(0.003)
        return item

    for result in session.stream(feeds(10), decode=read, workers=workers, metrics=metrics):
        assert set(result.seconds) == {"decode", "prepare", "infer", "decode_outputs", "waiting"}
        assert result.seconds["decode"] >= 0.003
    entries = {entry["stage"]: entry for entry in metrics.snapshot()["stages"]}
    whole = entries.pop("end_to_end")
    assert whole["count"] == 10
    assert whole["sum"] == pytest.approx(sum(entry["sum"] for entry in entries.values()))


@WAYS
def test_the_newest_frame_wins(session: Session, engines: Engines, workers: int) -> None:
    shown = 0

    def camera() -> Iterator[dict[str, Array]]:
        nonlocal shown
        for each in feeds(60):
            shown += 1
            yield each
            time.sleep(0.001)

    def behind(given: Mapping[str, Array]) -> dict[str, Array]:
        """A run of an engine that is slow beside this camera: ten more frames come meanwhile."""
        enough = min(shown + 10, 60) if shown else 0
        until(lambda: shown >= enough)
        return doubled(given)

    engines["ort"].behaviour["onnx"] = behind
    with Session(session.bundle, threads=2) as slow, slow.stream(camera(), newest=True, workers=workers) as s:
        found = [int(result.answer["y"][0, 0]) // 2 for result in s]
        assert found == sorted(set(found))
        assert found[-1] == 59  # the last one is never dropped
        assert len(found) + s.dropped == 60
        assert s.dropped > 10


def test_newest_alone() -> None:
    going = threading.Event()

    def source() -> Iterator[int]:
        yield 0
        going.wait(60)
        yield from range(1, 9)
        raise OSError("gone")

    frames = LatestFrame(source())
    assert next(frames) == 0
    going.set()
    end = time.monotonic() + 20
    while frames.dropped < 7:
        assert time.monotonic() < end
        time.sleep(0.001)
    assert next(frames) == 8
    assert frames.dropped == 7
    with pytest.raises(OSError, match="gone"):
        next(frames)
    assert next(frames, None) is None
    frames.close()
    endless = LatestFrame(iter(int, 1))
    assert next(endless) == 0
    endless.close()  # and its thread ends
    unread = LatestFrame([1])
    unread.close()
    assert next(unread, None) is None
