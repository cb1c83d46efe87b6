"""Headers of W3C Trace Context, well formed and as strangers send them."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.runtime.session_state import log
from edgekit.runtime.traces.trace_context import CURRENT, TraceContext, log_trace_ids, new_trace, parsed

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{SPAN}-01"


def test_a_header_is_read_and_written_again() -> None:
    context = parsed([GOOD], ["rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"])
    assert context == (TRACE, SPAN, True, "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE")
    child = context.child()
    assert child.headers == {"traceparent": f"00-{TRACE}-{child.span_id}-01", "tracestate": context.state}
    assert child.span_id != SPAN


@pytest.mark.parametrize(
    ("flags", "sampled"), [("00", False), ("01", True), ("02", False), ("03", True), ("ff", True)]
)
def test_only_the_flag_that_is_known_is_passed_on(flags: str, sampled: bool) -> None:
    context = parsed([f"00-{TRACE}-{SPAN}-{flags}"])
    assert context is not None
    assert (context.sampled, context.traceparent[-2:]) == (sampled, "01" if sampled else "00")


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN.upper()}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}0-{SPAN}-01",
        f"00-{TRACE}-{SPAN[1:]}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01-",
        f"01-{TRACE}-{SPAN}-01more",
        f"0-{TRACE}-{SPAN}-01",
        f"00_{TRACE}_{SPAN}_01",
        f"00-{TRACE}-{SPAN}-0x",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{TRACE[:-1]}\u0661-{SPAN}-01",
        f"01-{TRACE}-{SPAN}-01-{'x' * 500}",
    ],
)
def test_a_malformed_header_is_ignored(header: str) -> None:
    assert parsed([header], ["a=1"]) is None


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    for header in (f"01-{TRACE}-{SPAN}-01", f"cc-{TRACE}-{SPAN}-01-what-comes"):
        assert parsed([header]) == (TRACE, SPAN, True, "")


def test_several_headers_of_parents_are_malformed() -> None:
    assert parsed([]) is None
    assert parsed([GOOD, GOOD]) is None


@pytest.mark.parametrize(
    ("states", "kept"),
    [
        ([], ""),
        (["a=1"], "a=1"),
        (["a=1, b=2\t,", "c=3"], "a=1,b=2,c=3"),
        (["1tenant@vendor=x"], "1tenant@vendor=x"),
        (["a=1,a=2"], ""),
        (["A=1"], ""),
        (["a"], ""),
        (["a="], ""),
        (["a=b=c"], ""),
        (["a=\u00e9"], ""),
        (["a=1\r\nx: y"], ""),
        (["=1"], ""),
        ([",".join(f"k{n}=v" for n in range(32))], ",".join(f"k{n}=v" for n in range(32))),
        ([",".join(f"k{n}=v" for n in range(33))], ""),
        (["a=" + "x" * 256], "a=" + "x" * 256),
        (["a=" + "x" * 257], ""),
        (["a=" + "x" * 254, "b=" + "x" * 253], f"a={'x' * 254},b={'x' * 253}"),
        (["a=" + "x" * 254, "b=" + "x" * 255], ""),
    ],
)
def test_a_malformed_or_long_state_is_dropped_alone(states: list[str], kept: str) -> None:
    assert parsed([GOOD], states) == (TRACE, SPAN, True, kept)


@given(st.text(max_size=600), st.lists(st.text(max_size=300), max_size=3))
def test_any_text_is_ignored_or_becomes_a_header_of_one_line(parent: str, states: list[str]) -> None:
    for context in (parsed([parent], states), parsed([GOOD], states)):
        if context is not None:
            values = "".join(context.headers.values())
            assert values.isascii()
            assert values.isprintable()
            assert parsed([context.traceparent], [context.state]) == context


def test_the_share_of_new_traces_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(new_trace().sampled for _ in range(100))
    assert not any(new_trace(0.0).sampled for _ in range(100))
    assert 100 < sum(new_trace(0.25).sampled for _ in range(1000)) < 400
    drawn = iter([0, 5, 0, 7])
    monkeypatch.setattr("random.getrandbits", lambda bits: next(drawn))
    assert new_trace()[:2] == (f"{5:032x}", f"{7:016x}")  # zeros are no ids


def test_messages_inside_a_span_have_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    log_trace_ids()
    log_trace_ids()
    token = CURRENT.set(TraceContext(TRACE, SPAN))
    try:
        log().warning("fell back: %s", "100%")
    finally:
        CURRENT.reset(token)
    log().warning("outside")
    inside, outside = caplog.records
    assert inside.getMessage() == f"fell back: 100% (trace {TRACE})"
    assert (inside.__dict__["trace_id"], inside.__dict__["span_id"]) == (TRACE, SPAN)
    assert (outside.getMessage(), outside.levelno) == ("outside", logging.WARNING)
    assert "trace_id" not in outside.__dict__
