"""The decisions on a clock of their own: thousands of drawn schedules, no thread, no socket."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.runtime.remote.policy import (
    ENOUGH,
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    POLICIES,
    RESERVE_S,
    RETRIES_SAVED,
    RETRY_SHARE,
    Breaker,
    Retries,
    Rolling,
    decide,
    latest_start_s,
    second_opinion,
)

seconds = st.floats(0.0005, 0.5)


@settings(max_examples=2000)
@given(
    st.sampled_from(POLICIES),
    st.floats(0.01, 1.0),
    seconds,
    st.floats(0.2, 1.5),
    st.none() | seconds,
    st.one_of(st.just(math.inf), seconds),
    st.booleans(),
)
def test_whatever_the_server_does_the_answer_is_in_time(
    policy: str,
    deadline_s: float,
    local_s: float,
    ratio: float,
    remote_s: float | None,
    back_s: float,
    allowed: bool,
) -> None:
    """The device takes up to 1.5 of its p95, and fits within the deadline at all."""
    own_s = ratio * local_s
    plan = decide(policy, deadline_s, local_s, remote_s, "" if allowed else "it is down")
    assert plan.reason
    if plan.remote_at_s is None:
        assert plan.local_at_s == 0.0
    else:
        assert (policy, plan.remote_at_s, allowed) == ("remote-first", 0.0, True)
    assert plan.local_at_s is not None
    answered_s = min(back_s, math.inf if plan.remote_at_s is None else plan.local_at_s)
    if plan.remote_at_s is None or back_s > plan.local_at_s:
        answered_s = plan.local_at_s + own_s
    if own_s <= deadline_s - RESERVE_S:
        assert answered_s <= deadline_s
    else:  # it cannot be in time, and begins at once: the difference of equal numbers may leave a rest
        assert plan.local_at_s == pytest.approx(0.0, abs=1e-9)
        assert answered_s <= own_s + 1e-9
    if plan.remote_at_s is not None and remote_s is not None:
        assert plan.local_at_s <= remote_s


def test_a_device_that_nobody_timed_begins_at_once() -> None:
    assert decide("remote-first", 1.0, None, 0.1, "").local_at_s == 0.0
    assert decide("remote-first", 1.0, 0.1, None, "").local_at_s == latest_start_s(1.0, 0.1)


@given(st.lists(seconds, min_size=1, max_size=200))
def test_the_p95_of_the_last_64(values: list[float]) -> None:
    rolling = Rolling()
    for value in values:
        rolling.add(value)
    last = sorted(values[-64:])
    p95_s = rolling.p95_s()
    assert p95_s is not None
    assert sum(value <= p95_s for value in last) >= 0.95 * len(last)
    assert sum(value < p95_s for value in last) < 0.95 * len(last)
    assert (rolling.p95_s(ENOUGH) is None) == (len(values) < ENOUGH)


@pytest.mark.parametrize(
    ("confidence", "left_s", "remote_s", "why_not", "why"),
    [
        (0.9, 1.0, 0.1, "", "confidence 0.9 of at least 0.5"),
        (0.5, 1.0, 0.1, "", "confidence 0.5 of at least 0.5"),
        (0.4, 1.0, 0.1, "it is down", "confidence 0.4, but it is down"),
        (0.4, 0.05, 0.1, "", "confidence 0.4, but 50 ms are left"),
        (0.4, -0.1, None, "", "confidence 0.4, but 0 ms are left"),
        (0.4, 0.2, 0.1, "", ""),
        (0.4, 0.2, None, "", ""),
    ],
)
def test_a_second_opinion(
    confidence: float, left_s: float, remote_s: float | None, why_not: str, why: str
) -> None:
    assert second_opinion(confidence, 0.5, left_s, remote_s, why_not) == why


def test_a_confidence_that_is_no_number_asks() -> None:
    assert second_opinion(math.nan, 0.5, 1.0, None, "") == ""


# --- the breaker -----------------------------------------------------------------------------------------


def closed() -> Breaker:
    return Breaker().probing().probed(True, 0.0, 0.5).request_sent().after_result(True, False, 0.0, 0.5)


def test_it_begins_by_asking_whether_there_is_a_server() -> None:
    assert Breaker().probe_due(0.0)
    assert Breaker().refusal == "the server is not used: not checked yet"
    assert closed().state == "closed"
    assert closed().refusal == ""


@pytest.mark.parametrize(("good", "slow"), [(False, False), (True, True)])
def test_failed_and_slow_calls_open_it(good: bool, slow: bool) -> None:
    breaker, calls = closed(), 0
    while breaker.state == "closed":
        breaker, calls = breaker.after_result(good, slow, 10.0, 0.5, "bad"), calls + 1
    assert calls == 4
    assert breaker.refusal == "the server is not used: bad"
    assert breaker.until_s == 10.0 + FIRST_PAUSE_S


def test_one_bad_call_in_ten_does_not() -> None:
    breaker = closed()
    for number in range(1000):
        breaker = breaker.after_result(number % 10 != 0, number % 10 == 5, 0.0, 0.5)
        assert breaker.state == "closed"


def test_half_open_lets_one_through_and_it_decides() -> None:
    half = Breaker().probing().probed(True, 0.0, 0.5)
    assert (half.state, half.refusal) == ("half-open", "")
    assert half.request_sent().refusal != ""
    assert half.request_sent().after_result(True, True, 5.0, 0.5, "slow").state == "open"
    assert half.request_sent().after_result(False, False, 5.0, 0.5, "bad").until_s == 5.0 + FIRST_PAUSE_S


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60))
def test_pauses_double_up_to_the_longest_and_are_jittered(chances: list[float]) -> None:
    breaker, now_s = Breaker(), 0.0
    for number, chance in enumerate(chances):
        breaker = breaker.probing().probed(False, now_s, chance, "down")
        plain_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0**number)
        assert breaker.until_s - now_s == pytest.approx(plain_s * (0.5 + chance))
        assert not breaker.probe_due(now_s)
        now_s = breaker.until_s
        assert breaker.probe_due(now_s)


EVENTS = ["ask", "good", "bad", "slow", "ready", "unready", "wait"]


@settings(max_examples=300)
@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.floats(0, 1)), max_size=200))
def test_whatever_happens_it_keeps_its_rules(events: list[tuple[str, float]]) -> None:
    breaker, now_s, under_way = Breaker(), 0.0, 0
    for event, chance in events:
        before = breaker
        if event == "wait":
            now_s += 100 * chance
        elif event == "ask":
            if breaker.probe_due(now_s):
                breaker = breaker.probing()
            if not breaker.refusal:
                breaker, under_way = breaker.request_sent(), under_way + 1
        elif event in ("ready", "unready") and breaker.state == "probing":
            breaker = breaker.probed(event == "ready", now_s, chance, "unready")
        elif event in ("good", "bad", "slow") and under_way:
            under_way -= 1
            breaker = breaker.after_result(event != "bad", event == "slow", now_s, chance, event)
        assert breaker.state in ("closed", "open", "probing", "half-open")
        assert 0 <= breaker.failed <= 1
        assert 0 <= breaker.slow <= 1
        if breaker.state == "open":
            assert breaker.reason
            assert breaker.until_s <= now_s + 1.5 * LONGEST_PAUSE_S
        if breaker.state == "closed" and before.state != "closed":
            assert (before.state, event) == ("half-open", "good")
        if breaker.state == "probing" and before.state != "probing":
            assert before.state == "open"


@given(st.lists(st.booleans(), max_size=400))
def test_retries_are_a_tenth_of_the_requests(wishes: list[bool]) -> None:
    budget, spent = Retries(), 0
    for wish in wishes:
        budget = budget.request()
        left = budget.spend() if wish else None
        if left is not None:
            budget, spent = left, spent + 1
    assert spent <= RETRIES_SAVED + RETRY_SHARE * len(wishes)
    assert 0 <= budget.left <= RETRIES_SAVED
