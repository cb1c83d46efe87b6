"""The scheduler serves requests in their order, whatever happens to the threads that wait."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

import pytest

from edgekit.errors import UsageError
from edgekit.generate.device.cached_decoder import PART_TOKENS
from edgekit.generate.device.scheduler import SHARED_PART_TOKENS, Scheduler
from tests.fixtures.numpy_decoder import NumpyDecoder
from tests.fixtures.threads import until
from tests.generate.device.conftest import Open, held, queued
from tests.runtime.interrupted_everywhere import interrupted_at

pytestmark = pytest.mark.needs_tokenizers


def started(scheduler: Scheduler, work: Sequence[object]) -> list[threading.Thread]:
    """Threads, each of which waits for the scheduler before the next one begins."""
    threads = []
    for number, target in enumerate(work):
        threads.append(threading.Thread(target=target))  # type: ignore[arg-type]
        threads[-1].start()
        until(lambda expected=number + 2: queued(scheduler) == expected)  # type: ignore[misc]
    return threads


def test_requests_are_served_in_their_order(opened: Open) -> None:
    scheduler, order = opened()._scheduler, list[str]()

    def work(name: str) -> None:
        for _ in range(20):
            scheduler.run(lambda: order.append(name))

    with held(scheduler):
        threads = started(scheduler, [lambda name=name: work(name) for name in "abc"])
    for thread in threads:
        thread.join()
    # A thread may miss a round: it asks again only once it runs again. The first round was asked for before.
    assert order[:3] == ["a", "b", "c"]
    assert sorted(order) == sorted("abc" * 20)
    until(lambda: not queued(scheduler))


def test_an_engine_without_batches_serves_others_between_the_parts_of_a_prompt(opened: Open) -> None:
    steps = list[int]()
    runner = NumpyDecoder(before=lambda tokens: steps.append(len(tokens)))
    session = opened(runner, conversations=2, speculate="lookup")
    short, long = session.generate("short", max_tokens=9), session.generate("x" * 300, max_tokens=9)
    next(short)
    steps.clear()
    with held(session._scheduler):
        threads = started(session._scheduler, [lambda: next(long), lambda: next(short)])
    for thread in threads:
        thread.join()
    assert steps[:2] == [SHARED_PART_TOKENS, 1]


def test_a_short_prompt_that_comes_during_a_part_of_a_long_one_is_read_before_the_next_part(
    opened: Open,
) -> None:
    steps, threads = list[int](), list[threading.Thread]()

    def before(tokens: Sequence[int]) -> None:
        steps.append(len(tokens))
        if len(steps) == 1:
            threads.append(threading.Thread(target=short.text))
            threads[0].start()
            until(lambda: session._scheduler._inbox.qsize() == 1)

    session = opened(NumpyDecoder(before=before), conversations=2)
    short, long = session.generate("short", max_tokens=1), session.generate("x" * 300, max_tokens=1)
    long.text()
    threads[0].join()
    assert steps[:2] == [PART_TOKENS, len("short")]
    assert sum(steps) == 300 + len("short")


def test_a_prompt_keeps_its_cache_until_it_is_read(opened: Open) -> None:
    """Two prompts on one cache, by turns, would be read again from the beginning at each part."""
    runner = NumpyDecoder()
    session = opened(runner, kept_bytes=0)
    streams = [session.generate(letter * 400, max_tokens=1) for letter in "ab"]
    with held(session._scheduler):
        threads = started(session._scheduler, [stream.text for stream in streams])
    for thread in threads:
        thread.join()
    assert runner.computed == 2 * 400


def test_a_cancelled_text_waits_for_the_current_step_only(opened: Open) -> None:
    """Also on an engine without batches, behind others that wait."""
    ended, in_time = threading.Event(), list[bool]()
    runner = NumpyDecoder()
    session = opened(runner, speculate="lookup")
    runner.before = lambda tokens: in_time.append(ended.wait(20))
    first, second = session.generate("one", max_tokens=9), session.generate("two", max_tokens=9)

    def cancelled() -> None:
        assert next(second, "") == ""
        ended.set()

    with held(session._scheduler):
        threads = started(session._scheduler, [lambda: next(first), cancelled])
        second.cancel()
    for thread in threads:
        thread.join()
    assert in_time[0]
    assert second.result.reason == "cancelled"


def test_a_request_whose_caller_was_interrupted_is_dropped(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = NumpyDecoder()
    session = opened(runner)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    stream = session.generate("x" * 300)
    with held(session._scheduler), monkeypatch.context() as patch:
        patch.setattr("edgekit.generate.device.scheduler.ScheduledCall.wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            next(stream)
    assert session.facts()["caches"] == 1
    assert (runner.computed, stream.result.reason) == (0, "failed")
    until(lambda: not queued(session._scheduler))


def test_a_wait_enters_no_lock_that_is_written_in_python(opened: Open) -> None:
    """An interrupt inside one, e.g. a Condition, may leave it locked for all other threads."""
    session = opened(conversations=2)
    session.facts()  # its thread runs from now on
    assert interrupted_at(session.facts, 1, (Path(threading.__file__),)) == ""
    text = session.generate("once", max_tokens=2)
    assert interrupted_at(text.text, 1, (Path(threading.__file__),)) == ""


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="there is no SIGUSR1")
def test_a_signal_handler_may_use_the_session_while_its_thread_waits(opened: Open) -> None:
    """It asks for facts, generates another text and closes the session."""
    signals = list[object]()

    def handler(number: int, frame: FrameType | None) -> None:
        signals.append(session.facts()["caches"])
        signals.append(session.generate("another", max_tokens=5).text())
        session.close()

    def before(tokens: Sequence[int]) -> None:
        if not signals:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            until(lambda: len(signals) > 0 or queued(session._scheduler) > 1)

    session = opened(runner := NumpyDecoder(before=before), conversations=2)
    previous = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(UsageError, match="the text session is closed"):
            session.generate("once", max_tokens=50).text()
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert signals == [1, opened().generate("another", max_tokens=5).text()]
    assert runner.closed


def test_the_thread_ends_without_requests(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgekit.generate.device.scheduler.IDLE_S", 0.01)
    session = opened()
    expected = session.generate("once", max_tokens=5).text()
    until(lambda: not session._scheduler._serving)
    assert session.generate("once", max_tokens=5).text() == expected


def test_closing_ends_the_texts_that_wait(opened: Open) -> None:
    session, errors = opened(conversations=2), list[str]()
    streams = [session.generate(text, max_tokens=99) for text in ("one", "two")]

    def ends(number: int) -> None:
        with suppress(StopIteration):
            try:
                streams[number].text()
            except UsageError as problem:
                errors.append(str(problem))

    with held(session._scheduler):
        threads = started(session._scheduler, [session.close, lambda: ends(0), lambda: ends(1)])
    for thread in threads:
        thread.join()
    assert errors == 2 * ["the text session is closed; open a new one to generate"]
    assert {stream.result.reason for stream in streams} == {"failed"}
