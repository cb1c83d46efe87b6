"""Several conversations in one step of the decoder: the texts of each alone, and nobody is kept waiting."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Thread

import pytest

from edgekit.errors import NonFiniteOutputError
from edgekit.generate import TextSession, TextStream
from tests.fixtures.numpy_decoder import NumpyDecoder
from tests.fixtures.threads import until
from tests.generate.device.conftest import Open, held, queued

pytestmark = pytest.mark.needs_tokenizers
PROMPTS = ("the cat sat on the mat", "one, two, three", "é and è", "a much longer one. " * 4)


def at_once(session: TextSession, streams: Sequence[TextStream], pieces: int = 1) -> None:
    """Ask for pieces of each in a thread of its own, all of them waiting before the first is served."""
    scheduler = session._scheduler
    threads = [
        Thread(target=lambda stream=stream: [next(stream, "") for _ in range(pieces)]) for stream in streams
    ]
    with held(scheduler):
        for number, thread in enumerate(threads):
            thread.start()
            until(lambda expected=number + 2: queued(scheduler) == expected)  # type: ignore[misc]
    for thread in threads:
        thread.join()


def test_texts_are_those_of_each_alone(opened: Open) -> None:
    alone = [opened().generate(prompt, max_tokens=20, temperature=0.8, seed=2).text() for prompt in PROMPTS]
    session = opened(conversations=4)
    streams = [session.generate(prompt, max_tokens=20, temperature=0.8, seed=2) for prompt in PROMPTS]
    at_once(session, streams, 21)
    assert [stream.result.text for stream in streams] == alone


def test_those_that_wait_share_a_step(opened: Open) -> None:
    session = opened(conversations=4)
    streams = [session.generate(prompt, max_tokens=20) for prompt in PROMPTS]
    for stream in streams:
        next(stream)
    session._scheduler._step_s = 0.0  # nobody is waited for: all are there
    before = session.facts()["together"]
    assert before == {"on": True, "steps": 0, "tokens": 0}
    at_once(session, streams)
    assert session.facts()["together"]["steps"] >= 1
    assert session.facts()["together"]["tokens"] >= 4
    assert session.facts()["speculation"] == {"on": False, "why": "texts are computed together instead"}


def test_a_long_prompt_does_not_stop_the_others(opened: Open) -> None:
    steps = list[int]()
    session = opened(NumpyDecoder(before=lambda tokens: steps.append(len(tokens))), conversations=2)
    short, long = session.generate("short", max_tokens=9), session.generate("long " * 60, max_tokens=9)
    next(short)
    steps.clear()
    at_once(session, [long, short])
    assert steps.index(1) < len(steps) - 1 - steps[::-1].index(max(steps))


def test_who_is_cancelled_while_he_waits_computes_nothing(opened: Open) -> None:
    session = opened(conversations=2)
    one, other = session.generate("one", max_tokens=9), session.generate("other", max_tokens=9)
    next(one), next(other)
    made = len(other.tokens)
    other.cancel()
    at_once(session, [one, other])
    assert other.result.reason == "cancelled"
    assert len(other.tokens) == made
    assert not one.ended


def test_who_is_out_of_time_while_he_waits_has_what_was_made(opened: Open) -> None:
    session = opened(conversations=2)
    one, other = session.generate("one", max_tokens=9), session.generate("other", max_tokens=9)
    next(one), next(other)
    other._due_s = 0.0
    at_once(session, [one, other])
    assert other.result.reason == "timeout"


def test_a_failure_in_a_common_step_is_each_one_s_own_fallback(opened: Open) -> None:
    """One decoder only: all of them end with its error, and none hangs."""
    broken = list[bool]()

    def before(tokens: Sequence[int]) -> None:
        if broken:
            raise RuntimeError("out of order")

    session = opened(NumpyDecoder(before=before), conversations=2)
    streams = [session.generate(prompt, max_tokens=9) for prompt in PROMPTS[:2]]
    for stream in streams:
        next(stream)
    broken.append(True)
    for stream in streams:
        with pytest.raises(Exception, match="out of order"):
            next(stream)
        assert stream.result.reason == "failed"


def test_speculation_in_any_case_is_in_turns(opened: Open) -> None:
    session = opened(conversations=2, speculate="lookup")
    assert session.facts()["together"]["on"] is False
    assert session.facts()["speculation"]["on"] is True


def test_a_thread_that_writes_several_texts_in_turn_waits_for_none_of_them(opened: Open) -> None:
    session = opened(conversations=2)
    streams = [session.generate(prompt, max_tokens=9) for prompt in PROMPTS[:2]]
    for stream in streams:
        next(stream)
    made = sum(len(stream.tokens) for stream in streams)
    for _ in range(3):
        for stream in streams:
            session._scheduler._step_s = 1e6  # of which a quarter would be waited
            next(stream, "")
    assert sum(len(stream.tokens) for stream in streams) > made + 1


def test_a_text_without_finite_logits_costs_the_others_of_its_step_nothing(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def another_is_bad(*_: object) -> None:
        raise NonFiniteOutputError("the decoder's logits are NaN or infinite")

    alone = opened().generate(PROMPTS[0], max_tokens=9).text()
    session = opened(conversations=2)
    monkeypatch.setattr("edgekit.generate.device.scheduler.logits_of_batch", another_is_bad)
    assert session.generate(PROMPTS[0], max_tokens=9).text() == alone
