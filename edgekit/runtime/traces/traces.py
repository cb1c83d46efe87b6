"""Spans of a device as rows of an outbox, in OTLP's JSON form, without dependencies.

    outbox = Outbox("traces", HttpSink("http://collector:4318/v1/traces", content_type=otlp.JSON))
    traces = Traces(outbox, {"service.name": "gate-camera", "device.id": "7"}, share=0.01)
    metrics = Metrics(session, traces=traces)
    remote = RemoteSession(session, url, "detector", traces=traces)

All spans of a request are one row. Source: opentelemetry-proto, trace/v1/trace.proto.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextvars import Token
from types import TracebackType
from typing import Any

from edgekit._version import __version__
from edgekit.bundle.bundle import Bundle
from edgekit.errors import UsageError
from edgekit.runtime.metrics import otlp
from edgekit.runtime.metrics.labelled_counts import unspecific
from edgekit.runtime.outbox.outbox import Outbox
from edgekit.runtime.predictor import SessionProtocol
from edgekit.runtime.session_state import Active
from edgekit.runtime.traces.run_record import new_fallbacks
from edgekit.runtime.traces.trace_context import CURRENT, TraceContext, log_trace_ids, new_trace, parsed
from edgekit.system.formats import strict_json
from edgekit.tensor_spec import Array, Json

SPANS = 128
"""Maximum number of spans of a row; a request with more has several rows."""
EVENTS = 32
"""Maximum number of events of a span."""
INTERNAL, CLIENT = 1, 3
"""SPAN_KIND_INTERNAL and SPAN_KIND_CLIENT"""
ERROR = 2
"""STATUS_CODE_ERROR"""
FALLBACK = "edgekit.fallback"
Attributes = Mapping[str, str]


class Traces:
    """Recorder of spans. Thread-safe.

    Args:
        outbox: Destination of the rows, of the kind ``log``: they are dropped first. It must outlive this.
        share: Share of the traces that are recorded, 0 to 1. A server follows the device's choice.

    Attributes:
        dropped: Number of rows that the outbox did not take.

    Raises:
        UsageError: ``share`` is not from 0 to 1.
    """

    def __init__(self, outbox: Outbox, resource: Attributes | None = None, *, share: float = 1.0) -> None:
        if not 0 <= share <= 1:
            raise UsageError(f"share must be from 0 to 1, not {share!r}")
        self._outbox, self._share = outbox, share
        self._resource = otlp.resource_of(resource)
        self._lock = threading.Lock()
        self._open: dict[str, int] = {}
        self._ended: dict[str, list[Json]] = {}
        self.dropped = 0
        log_trace_ids()

    def span(
        self,
        name: str,
        attributes: Attributes | None = None,
        *,
        traceparent: str = "",
        kind: int = INTERNAL,
    ) -> Span:
        """Return a span, to be entered with ``with``, below the span in which the caller is.

        Args:
            name: Name, of a small set: no ids and no data.
            traceparent: Header of the request that it is a part of, if another process sent one.
        """
        above = (parsed([traceparent]) if traceparent else None) or CURRENT.get()
        context = new_trace(self._share) if above is None else above.child()
        return Span(self, name, context, "" if above is None else above.span_id, kind, attributes)

    def client_span(self) -> Span:
        """Return the span of a request to a server. Any thread may enter it."""
        return self.span("infer_remote", kind=CLIENT)

    def session(self, session: SessionProtocol) -> TracedSession:
        """Return a session whose stages are spans."""
        return TracedSession(session, self)

    def began(self, span: Span) -> None:
        """Note a span that began; its trace is not complete."""
        trace_id = span.context.trace_id
        with self._lock:
            self._open[trace_id] = self._open.get(trace_id, 0) + 1

    def ended(self, span: Span) -> None:
        """Record a span that ended. The last open one of a trace completes the row."""
        trace_id = span.context.trace_id
        with self._lock:
            spans = self._ended.setdefault(trace_id, [])
            spans.append(span.as_json())
            self._open[trace_id] -= 1
            if not self._open[trace_id]:
                del self._open[trace_id]
            elif len(spans) < SPANS:
                return
            del self._ended[trace_id]
        scoped = {"scope": {"name": "edgekit", "version": __version__}, "spans": spans}
        try:
            self._outbox.put(
                strict_json.encode({"resourceSpans": [{"resource": self._resource, "scopeSpans": [scoped]}]}),
                kind="log",
            )
        except UsageError:  # closed, or the row is too large; a request must not fail by it
            self.dropped += 1


class Span:
    """One step of a request. While it is entered, spans that begin in the same thread are below it."""

    def __init__(
        self,
        traces: Traces,
        name: str,
        context: TraceContext,
        above: str,
        kind: int,
        attributes: Attributes | None,
    ) -> None:
        self._traces, self._name, self._above, self._kind = traces, name, above, kind
        self.context = context
        self._attributes = dict(attributes or {})
        self._events: list[Json] = []
        self._problem = ""
        self._began_ns = self._took_ns = self._since_ns = 0
        self._token: Token[TraceContext | None] | None = None

    def set(self, **attributes: str) -> None:
        """Add attributes, with the prefix ``edgekit.``."""
        self._attributes.update({f"edgekit.{name}": value for name, value in attributes.items()})

    def fell_back(self, from_: str, to: str, reason: str) -> None:
        """Add a fallback as an event. Numbers and paths are removed from the reason, as in metrics."""
        if len(self._events) < EVENTS:
            about = {"from": from_, "to": to, "reason": unspecific(reason)}
            self._events.append(
                {
                    "name": FALLBACK,
                    "timeUnixNano": str(self._now_ns()),
                    "attributes": otlp.attributes_of({f"{FALLBACK}.{key}": v for key, v in about.items()}),
                }
            )

    def failed(self, problem: BaseException | str) -> None:
        """Mark it as failed."""
        self._problem = unspecific(str(problem)) or type(problem).__name__

    def __enter__(self) -> Span:
        self._began_ns, self._since_ns = time.time_ns(), time.perf_counter_ns()
        self._token = CURRENT.set(self.context)
        if self.context.sampled:
            self._traces.began(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            CURRENT.reset(self._token)
        if problem is not None:
            self.failed(problem)
        if self.context.sampled:
            self._took_ns = time.perf_counter_ns() - self._since_ns
            self._traces.ended(self)

    def _now_ns(self) -> int:
        return self._began_ns + time.perf_counter_ns() - self._since_ns

    def as_json(self) -> Json:
        """Return it as OTLP's JSON has it: ids in hexadecimal, 64-bit integers as strings."""
        return {
            "traceId": self.context.trace_id,
            "spanId": self.context.span_id,
            **({"parentSpanId": self._above} if self._above else {}),
            **({"traceState": self.context.state} if self.context.state else {}),
            "flags": 1,
            "name": self._name,
            "kind": self._kind,
            "startTimeUnixNano": str(self._began_ns),
            "endTimeUnixNano": str(self._began_ns + self._took_ns),
            "attributes": otlp.attributes_of(self._attributes),
            "events": self._events,
            **({"status": {"code": ERROR, "message": self._problem}} if self._problem else {}),
        }


class TracedSession:
    """Session whose preparation, runs and decoding are spans, named as the stages of metrics."""

    def __init__(self, session: SessionProtocol, traces: Traces) -> None:
        self._session, self._traces = session, traces
        self.bundle: Bundle = session.bundle

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run like ``Session.run``; fallbacks of the run are events of its span."""
        session = self._session
        before = session.history
        with self._traces.span("infer") as span:
            try:
                return session.run(feeds)
            finally:
                span.set(**about_run(session.active))
                for change in new_fallbacks(before, session.history):
                    span.fell_back(change.from_, change.to, change.reason)

    def prepare(self, frame: Any, order: str = "rgb") -> tuple[dict[str, Array], Any]:
        """Prepare like ``Session.prepare``."""
        with self._traces.span("prepare"):
            return self._session.prepare(frame, order)

    def decode(self, outputs: Mapping[str, Array], placed: Any, **options: Any) -> Any:
        """Decode like ``Session.decode``."""
        with self._traces.span("decode_outputs"):
            return self._session.decode(outputs, placed, **options)


def about_run(active: Active) -> dict[str, str]:
    """Return the attributes of a run, without the prefix ``edgekit.``."""
    return dict(zip(("variant", "engine", "device", "precision"), map(str, active), strict=True))
