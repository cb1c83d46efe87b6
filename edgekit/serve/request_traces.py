"""Spans of a server's requests, by OpenTelemetry's SDK (the extra ``traces``), over HTTP and gRPC.

The environment turns them on, by OpenTelemetry's own variables (``OTEL_EXPORTER_OTLP_ENDPOINT``). Without
them nothing of OpenTelemetry is imported, and a request costs one look at a context variable.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import Any

from edgekit._version import __version__
from edgekit.errors import MissingDependency, printable
from edgekit.runtime.fallback.policy import Fallback
from edgekit.runtime.metrics.labelled_counts import unspecific
from edgekit.runtime.traces.run_record import RunRecord
from edgekit.runtime.traces.trace_context import (
    CURRENT,
    TRACEPARENT,
    TRACESTATE,
    TraceContext,
    log_trace_ids,
    parsed,
)
from edgekit.runtime.traces.traces import FALLBACK, about_run
from edgekit.serve.inference_requests import RequestError
from edgekit.serve.request_memory import began_s

NOT_TRACED = (401, 403)
"""Statuses of requests of which nothing is recorded: who has no access makes no work for the collector."""
V1 = ("chat/completions", "completions", "embeddings", "audio/transcriptions", "audio/translations")
ENDS = ("infer", "predict")
SERVICE = "inference.GRPCInferenceService"
PROTOCOLS = ("http/protobuf", "grpc")


class RequestTrace:
    """Spans of one request.

    Args:
        name: Name of the request's span: its method and its path without ids.
        above: Span of the client. None means the request begins a trace.
        since_s: Start of the request, on the clock of ``time.monotonic``.
    """

    def __init__(
        self,
        tracer: Any,
        name: str,
        above: TraceContext | None,
        since_s: float,
        attributes: Mapping[str, str],
    ) -> None:
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind, set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = tracer
        self._to_unix_ns = time.time_ns() - time.monotonic_ns()
        w3c, headers = TraceContextTextMapPropagator(), dict[str, str]()
        parent = w3c.extract({} if above is None else above.headers, Context())
        started_ns = self._ns(since_s)
        self._span = tracer.start_span(name, parent, SpanKind.SERVER, attributes, start_time=started_ns)
        self._context = set_span_in_context(self._span, Context())
        w3c.inject(headers, self._context)
        context = parsed([headers[TRACEPARENT]], [headers.get(TRACESTATE, "")])
        assert context is not None
        self.context = context

    def _ns(self, seconds: float) -> int:
        return int(seconds * 1e9) + self._to_unix_ns

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Make it the trace of this task or thread: of its log messages, and of ``current_trace``."""
        tokens = REQUEST.set(self), CURRENT.set(self.context)
        try:
            yield
        finally:
            REQUEST.reset(tokens[0])
            CURRENT.reset(tokens[1])

    def part(
        self,
        name: str,
        began_s: float,
        ended_s: float,
        attributes: Mapping[str, Any] | None = None,
        fallbacks: Sequence[Fallback] = (),
    ) -> None:
        """Record a span below the request's; from any thread.

        Args:
            began_s, ended_s: Its start and end, on the clock of ``time.monotonic``.
            attributes: Attributes without the prefix ``edgekit.``.
        """
        if not self.context.sampled:
            return
        about = {f"edgekit.{key}": value for key, value in (attributes or {}).items()}
        span = self._tracer.start_span(name, self._context, attributes=about, start_time=self._ns(began_s))
        for change in fallbacks:
            hop = {"from": change.from_, "to": change.to, "reason": unspecific(change.reason)}
            time_ns = self._ns(ended_s)
            span.add_event(FALLBACK, {f"{FALLBACK}.{key}": value for key, value in hop.items()}, time_ns)
        span.end(self._ns(ended_s))

    def ran(self, record: RunRecord) -> None:
        """Record the waiting and the run of a request; of one that was not run, its waiting until now."""
        if not record.queued_s:
            return
        self.part("waiting", record.queued_s, record.run_start_s or time.monotonic())
        if record.run_start_s:
            about = about_run(record.active) | {"batch": record.batch_size}
            self.part("infer", record.run_start_s, record.run_end_s, about, record.fallbacks)

    def failed(self, problem: Exception, status: int = 500) -> None:
        """Mark the request as failed, unless the fault is the client's."""
        if status >= 500:
            self._span.set_attribute("error.type", type(problem).__name__)
            self._span.set_status(self._error(unspecific(str(problem))))

    @staticmethod
    def _error(reason: str | None = None) -> Any:
        from opentelemetry.trace import Status, StatusCode

        return Status(StatusCode.ERROR, reason)

    def end(self, attributes: Mapping[str, Any], failed: bool = False) -> None:
        """End the request's span."""
        self._span.set_attributes(dict(attributes))
        if failed:
            self._span.set_status(self._error())
        self._span.end()


REQUEST: ContextVar[RequestTrace | None] = ContextVar("edgekit_request_trace", default=None)
current_trace: Callable[[], RequestTrace | None] = REQUEST.get
"""Trace of the request that the caller's task handles. None means it is not traced."""


@contextmanager
def traced(name: str) -> Iterator[None]:
    """Record a stage of the current request, if it is traced, while the block runs."""
    trace, begun_s = REQUEST.get(), time.monotonic()
    try:
        yield
    finally:
        if trace is not None:
            trace.part(name, begun_s, time.monotonic())


class ServerTraces:
    """Traces of a server."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("edgekit", __version__)
        log_trace_ids()

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()

    async def over_http(self, app: Any, route: str, scope: Any, receive: Any, send: Any) -> None:
        """Handle a request of an ASGI app as a span. The response has its ``traceparent``."""
        named = {name: [v.decode("latin-1") for n, v in scope["headers"] if n == name] for name in _HEADERS}
        above = parsed(*named.values())
        about = {"http.request.method": scope["method"], "http.route": route}
        trace = RequestTrace(self._tracer, f"{scope['method']} {route}", above, began_s(scope), about)
        status = 500

        async def noted(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if status not in NOT_TRACED:
                    header = (_HEADERS[0], trace.context.traceparent.encode())
                    message = {**message, "headers": [*message.get("headers", ()), header]}
            await send(message)

        try:
            with trace.entered():
                await app(scope, receive, noted)
        finally:
            if status not in NOT_TRACED:
                trace.end({"http.response.status_code": status}, status >= 500)

    def over_grpc(
        self,
        handler: Callable[[Any, Any, Any], Any],
        public_error: Callable[[Exception], RequestError],
        answers: bool = True,
    ) -> Callable[[Any, Any, Any], Any]:
        """Return a handler of ``ModelInfer`` whose calls are spans.

        Args:
            public_error: Returns the error for a client, and writes the log.
            answers: Whether the call has this response alone: its trailing metadata get ``traceparent``.
        """
        about = {"rpc.system": "grpc", "rpc.service": SERVICE, "rpc.method": "ModelInfer"}

        def handle(request: Any, call: Any, lease: Any) -> Any:
            since_s = time.monotonic()
            names = (TRACEPARENT, TRACESTATE)
            above = parsed(*([value for key, value in call.metadata if key == name] for name in names))
            trace = RequestTrace(self._tracer, f"{SERVICE}/ModelInfer", above, since_s, about)
            if answers:
                call.trailing.append((TRACEPARENT, trace.context.traceparent))
            try:
                with trace.entered():
                    try:
                        return handler(request, call, lease)
                    except Exception as problem:
                        error = public_error(problem)  # here: the log has the trace's id
                        trace.failed(problem, error.status)
                        raise error from None
            finally:
                trace.end({})

        return handle


_HEADERS = (TRACEPARENT.encode(), TRACESTATE.encode())


def route_of(scope: Mapping[str, Any]) -> str:
    """Return the path of a traced request without ids; "" of all others: health, metadata, metrics.

    >>> route_of({"type": "http", "method": "POST", "path": "/v2/models/net/versions/3/infer"})
    '/v2/models/{model}/versions/{version}/infer'
    """
    if scope["type"] != "http" or scope["method"] != "POST":
        return ""
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    if path.startswith("/v1/"):
        return path if path[4:] in V1 else ""
    parts = path.split("/")
    if not path.startswith("/v2/models/") or parts[-1] not in ENDS:
        return ""
    versions = "/versions/{version}" if len(parts) == 7 and parts[4] == "versions" else ""
    return f"/v2/models/{{model}}{versions}/{parts[-1]}" if versions or len(parts) == 5 else ""


def traces_of_environment() -> ServerTraces | None:
    """Return the traces that OpenTelemetry's environment variables ask for, or None.

    If an endpoint is set and traces are off all the same, stderr has the reason. It is not an error: such
    variables are set for all programs of a machine.
    """
    name = os.environ.get("OTEL_TRACES_EXPORTER") or "otlp"
    is_disabled = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or name == "none"
    if is_disabled or not _of_exporter("ENDPOINT"):
        return None
    protocol = _of_exporter("PROTOCOL") or PROTOCOLS[0]
    if name != "otlp":
        reason = f"OTEL_TRACES_EXPORTER is {name!r}; use otlp or none"
    elif protocol not in PROTOCOLS:
        reason = f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}; use {' or '.join(PROTOCOLS)}"
    else:
        try:
            return ServerTraces(_provider(protocol))
        except MissingDependency as problem:
            reason = str(problem)
    print(f"warning: traces are off: {printable(reason)}", file=sys.stderr, flush=True)
    return None


def _of_exporter(name: str) -> str | None:
    prefix = "OTEL_EXPORTER_OTLP_"
    return os.environ.get(f"{prefix}TRACES_{name}") or os.environ.get(prefix + name)


def _provider(protocol: str) -> Any:
    """Return a provider that reads the rest of OpenTelemetry's variables.

    Raises:
        MissingDependency: OpenTelemetry's SDK or the exporter is not installed.
    """
    kind = protocol.partition("/")[0]
    try:
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        exporters = import_module(f"opentelemetry.exporter.otlp.proto.{kind}.trace_exporter")
    except ImportError as problem:
        is_exporter = "exporter" in str(problem.name)
        package = f"opentelemetry-exporter-otlp-proto-{kind}" if is_exporter else "opentelemetry-sdk"
        install = f"pip install {package}" if kind == "grpc" and is_exporter else ""
        raise MissingDependency(package, "OTEL_EXPORTER_OTLP_ENDPOINT", install, extra="traces") from None
    resource = Resource.create()
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: "edgekit"}))
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(exporters.OTLPSpanExporter()))
    return provider
