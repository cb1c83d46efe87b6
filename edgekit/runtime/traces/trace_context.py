"""Trace of a request across processes: the headers ``traceparent`` and ``tracestate``.

Source: W3C Trace Context (https://www.w3.org/TR/trace-context/). A header comes from a stranger: a malformed
one is ignored, and the request begins a trace of its own.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import logging

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
TRACEPARENT_CHARS = 512
"""Maximum characters of ``traceparent``: later versions may be longer than the 55 of version 00."""
TRACESTATE_CHARS = 512
"""Maximum characters of ``tracestate``, which the recommendation wants passed on. A longer one is dropped."""
TRACESTATE_MEMBERS = 32
SAMPLED = 1
_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_KEY = r"[a-z0-9][a-z0-9_\-*/]{0,240}(?:@[a-z][a-z0-9_\-*/]{0,13})?"
_MEMBER = re.compile(rf"({_KEY})=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{{0,255}}[\x21-\x2b\x2d-\x3c\x3e-\x7e]")


class TraceContext(NamedTuple):
    """A span, as the next process knows it.

    Attributes:
        trace_id: 32 hexadecimal digits, the same in all processes.
        span_id: 16 hexadecimal digits.
        state: Value of ``tracestate``; "" if there is none.
    """

    trace_id: str
    span_id: str
    sampled: bool = True
    state: str = ""

    @property
    def traceparent(self) -> str:
        """Return the header of version 00."""
        return f"00-{self.trace_id}-{self.span_id}-{SAMPLED if self.sampled else 0:02x}"

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of a request to the next process."""
        parent = {TRACEPARENT: self.traceparent}
        return {**parent, TRACESTATE: self.state} if self.state else parent

    def child(self) -> TraceContext:
        """Return the context of a new span below this one."""
        return self._replace(span_id=_hex(64))


CURRENT: ContextVar[TraceContext | None] = ContextVar("edgekit_trace", default=None)
"""Span in which the caller's thread or task is. None means it is in none."""


def new_trace(share: float = 1.0) -> TraceContext:
    """Return the context of the first span of a trace."""
    trace_id = _hex(128)
    # The rightmost 56 bits, which the second level of the recommendation wants random.
    return TraceContext(trace_id, _hex(64), int(trace_id[-14:], 16) < share * (1 << 56))


def parsed(parents: Sequence[str], states: Sequence[str] = ()) -> TraceContext | None:
    """Return the context of a request's sender, or None if it sent none or a malformed one.

    Args:
        parents: Values of all headers ``traceparent``; several are malformed.
        states: Values of all headers ``tracestate``. A malformed one is dropped alone.

    >>> parsed(["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"]).span_id
    '00f067aa0ba902b7'
    >>> parsed(["00-00000000000000000000000000000000-00f067aa0ba902b7-01"]) is None
    True
    """
    if len(parents) != 1 or len(parents[0]) > TRACEPARENT_CHARS:
        return None
    match = _PARENT.fullmatch(parents[0].strip(" \t"))
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    if version == "ff" or (version == "00" and more) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & SAMPLED), _state(states))


def _state(values: Sequence[str]) -> str:
    if sum(map(len, values)) + len(values) > TRACESTATE_CHARS + 1:
        return ""
    members = [member.strip(" \t") for value in values for member in value.split(",")]
    matches = [_MEMBER.fullmatch(member) for member in members if member]
    keys = {match[1] for match in matches if match is not None}
    if None in matches or len(keys) != len(matches) or len(matches) > TRACESTATE_MEMBERS:
        return ""
    return ",".join(member for member in members if member)


def _hex(bits: int) -> str:
    while not (number := random.getrandbits(bits)):
        pass
    return f"{number:0{bits // 4}x}"


def log_trace_ids() -> None:
    """Add the trace id to the runtime's log messages inside a span, and as ``trace_id`` and ``span_id`` to
    their records."""
    from edgekit.runtime.session_state import log

    if _add_ids not in log().filters:
        log().addFilter(_add_ids)


def _add_ids(record: logging.LogRecord) -> bool:
    context = CURRENT.get()
    if context is not None and not hasattr(record, "trace_id"):
        record.trace_id, record.span_id = context.trace_id, context.span_id
        record.msg, record.args = f"{record.getMessage()} (trace {context.trace_id})", ()
    return True
