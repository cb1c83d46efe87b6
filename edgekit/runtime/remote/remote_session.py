"""A session with a server that runs the same model: either produces the outputs, within the deadline.

    with RemoteSession(session, "http://10.0.0.5:8080", "detector", policy="remote-first") as both:
        answer = both.run(feeds)        # a dict of outputs, as session.run returns
        answer.path, answer.reason         # "local", "the server did not respond within 31 ms"

Any server of the Open Inference Protocol v2. policy.py decides, inference_protocol.py encodes; this module
has the threads: one for each open request to the server, at most four, none with ``local-only``. The device
runs in the caller's thread.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING

import numpy as np

from edgekit.errors import EdgeKitError, EngineError, UsageError
from edgekit.runtime.http_connection import ConnectionFailedError, HttpConnection
from edgekit.runtime.loading.output_checks import OutputChecks, non_finite_inputs
from edgekit.runtime.remote.calls import Call, RemoteCalls
from edgekit.runtime.remote.inference_protocol import DATATYPES, AnswerError, Client, ServerForm
from edgekit.runtime.remote.policy import (
    ENOUGH,
    POLICIES,
    Breaker,
    Retries,
    Rolling,
    decide,
    latest_start_s,
    second_opinion,
)
from edgekit.system.closing import Closing
from edgekit.target.tensor_checks import fitted
from edgekit.tensor_spec import Array, Json

if TYPE_CHECKING:
    import ssl

    from edgekit.runtime.predictor import SessionProtocol
    from edgekit.runtime.traces.traces import Span, Traces

PROBE_S = 2.0
"""Timeout of the readiness check, which includes the model's metadata."""
RETRY_PAUSE_S = 0.01


class RemoteResult(dict[str, Array]):
    """The outputs by name, and where they come from.

    Attributes:
        path: ``local`` or ``remote``.
        took_ms: From the request to the outputs.
    """

    def __init__(self, outputs: Mapping[str, Array], path: str, reason: str, took_ms: float) -> None:
        super().__init__(outputs)
        self.path, self.reason, self.took_ms = path, reason, took_ms


class RemoteSession(Closing):
    """A session with a server next to it. Thread-safe, like the session, which stays open at ``close``.

    Policies:
        ``local-only``: the device; no thread and no socket.
        ``local-first``: the device; the server if the device fails.
        ``remote-first``: the server; a hedged run on the device starts when the server exceeds its p95, and
        in any case early enough for the deadline.
        ``confidence``: the device; then the server for outputs of low confidence.

    The server's readiness and model are checked in the background; until then, and while the circuit breaker
    is open, the device runs all requests.

    Args:
        url: The server's, without ``/v2``.
        deadline_ms: Deadline of a request. The local run itself is not interrupted; see
            ``Session(deadline_ms=)`` for runs that hang.
        confidence: For that policy: computes a confidence from the device's outputs.
        threshold: The confidence from which the device's outputs are kept.
        version: Version of the model on the server. Empty means the server's default.
        headers: Headers of every request, e.g. an authorization.
        context: For https. None means the system's certificates.
        traces: Records spans of each request, and sends the server ``traceparent``. None means neither.

    Raises:
        UsageError: an argument is invalid, or the protocol cannot encode the model's inputs or outputs.
    """

    def __init__(
        self,
        session: SessionProtocol,
        url: str,
        model: str,
        *,
        policy: str = "local-first",
        deadline_ms: float = 1000.0,
        confidence: Callable[[Mapping[str, Array]], float] | None = None,
        threshold: float | None = None,
        version: str = "",
        headers: Mapping[str, str] | None = None,
        context: ssl.SSLContext | None = None,
        traces: Traces | None = None,
    ) -> None:
        if policy not in POLICIES:
            raise UsageError(f"unknown policy {policy!r}; available: {', '.join(POLICIES)}")
        if not 0 < deadline_ms < float("inf"):
            raise UsageError(f"deadline_ms must be a positive number, not {deadline_ms!r}")
        if (policy == "confidence") != (confidence is not None) or (confidence is None) != (
            threshold is None
        ):
            raise UsageError("policy 'confidence', and only that, needs both confidence and threshold")
        for spec in (*session.inputs, *session.outputs):
            if spec.dtype not in DATATYPES:
                raise UsageError(
                    f"{spec} cannot be encoded in the Open Inference Protocol; use the session alone"
                )
        self.session, self.policy = session, policy
        self._traces, self._runs = traces, session if traces is None else traces.session(session)
        self._deadline_s = deadline_ms / 1000
        self._confidence, self._threshold = confidence, threshold or 0.0
        self._sound = OutputChecks(session.outputs, lambda: session.bundle.golden, session.bundle.shapes)
        self._lock = threading.Lock()
        self._local, self._remote = Rolling(), Rolling()
        self._breaker, self._retries, self._form = Breaker(), Retries(), ServerForm()
        self._counts = dict.fromkeys(("local", "remote", "late"), 0)

        def client() -> Client:
            wire = HttpConnection(url, headers, context)
            return Client(wire, model, session.bundle.shapes, version)

        client()  # validates the URL
        self._calls = RemoteCalls(client)
        if policy != "local-only":
            self._objection()  # starts the readiness check

    # --- running -----------------------------------------------------------------------------------------

    def run(self, feeds: Mapping[str, Array]) -> RemoteResult:
        """Run once, on the device or the server.

        Args:
            feeds: Inputs by name, the same as for ``Session.run``.

        Raises:
            UsageError: ``feeds`` does not fit, or the session is closed.
            NoVariantError, EngineError: the device failed, and the server did not respond in time.
        """
        if self._traces is None:
            return self._run(feeds, None)
        with self._traces.span("remote_run") as span:
            result = self._run(feeds, span)
            span.set(path=result.path)
            return result

    def _run(self, feeds: Mapping[str, Array], span: Span | None) -> RemoteResult:
        began_s = time.monotonic()
        fitted(feeds, self.session.bundle.shapes)  # what a session refuses must not reach the server either
        objection = "" if self.policy == "local-only" else self._objection()
        if self.policy != "local-only" and non_finite_inputs(feeds):
            objection = "an input is not finite"  # the server would refuse it, and be taken for a faulty one
        largest = all(feeds[spec.name].shape == spec.shape for spec in self.session.inputs)
        if not largest and not self._form.all_shapes:
            objection = objection or "the server runs the largest of the bundle's shapes only"
        with self._lock:
            local_s, remote_s = self._local.p95_s(), self._remote.p95_s(ENOUGH)
        plan = decide(self.policy, self._deadline_s, local_s, remote_s, objection)
        call = None
        if plan.remote_at_s is not None:
            call = self._send(feeds, began_s + self._deadline_s)
            if plan.local_at_s is not None and call.wait(began_s + plan.local_at_s):
                return self._answer(call.outputs, "remote", plan.reason, began_s)
        reason = plan.reason if call is None else call.missing(began_s)
        try:
            outputs = self._run_local(feeds)
        except EngineError as problem:
            return self._after_local_failure(problem, feeds, call, objection, began_s, span)
        if call is not None and call.outputs is not None:
            return self._answer(call.outputs, "remote", "it responded while the device ran", began_s)
        if span is not None and (call is not None or (self.policy == "remote-first" and objection)):
            span.fell_back("remote", "local", reason)
        if self._confidence is not None:
            return self._confirm(outputs, feeds, remote_s, objection, began_s)
        return self._answer(outputs, "local", reason, began_s)

    def _after_local_failure(
        self,
        problem: EngineError,
        feeds: Mapping[str, Array],
        call: Call | None,
        objection: str,
        began_s: float,
        span: Span | None,
    ) -> RemoteResult:
        if call is None and self.policy != "local-only" and not objection:
            call = self._send(feeds, began_s + self._deadline_s)
        if call is not None and span is not None:
            span.fell_back("local", "remote", str(problem))
        if call is None or not call.wait(began_s + self._deadline_s):
            raise problem
        return self._answer(call.outputs, "remote", f"the device failed: {problem}", began_s)

    def _confirm(
        self,
        outputs: Mapping[str, Array],
        feeds: Mapping[str, Array],
        remote_s: float | None,
        objection: str,
        began_s: float,
    ) -> RemoteResult:
        assert self._confidence is not None
        device_confidence, end_s = float(self._confidence(outputs)), began_s + self._deadline_s
        left_s = end_s - time.monotonic()
        reason = second_opinion(device_confidence, self._threshold, left_s, remote_s, objection)
        if not reason:
            call = self._send(feeds, end_s)
            if call.wait(end_s):
                return self._answer(
                    call.outputs, "remote", f"confidence {device_confidence:.3g} of the device", began_s
                )
            reason = f"confidence {device_confidence:.3g}, but {call.missing(began_s)}"
        return self._answer(outputs, "local", reason, began_s)

    def _answer(
        self, outputs: Mapping[str, Array] | None, path: str, reason: str, began_s: float
    ) -> RemoteResult:
        assert outputs is not None
        took_s = time.monotonic() - began_s
        with self._lock:
            self._counts[path] += 1
            self._counts["late"] += took_s > self._deadline_s
        return RemoteResult(outputs, path, reason, 1000 * took_s)

    def _run_local(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        began_s = time.monotonic()
        outputs = self._runs.run(feeds)
        with self._lock:
            self._local.add(time.monotonic() - began_s)
        return outputs

    # --- the server --------------------------------------------------------------------------------------

    def _objection(self) -> str:
        """Return the reason that the server must not be used now, or "". Start a probe if one is due."""
        with self._lock:
            self._retries = self._retries.request()
            if self._breaker.probe_due(time.monotonic()) and self._calls.free:
                self._breaker = self._breaker.probing()
                self._calls.begin(Call(self._check_server))
            return self._breaker.refusal or ("" if self._calls.free else "all connections are in use")

    def _send(self, feeds: Mapping[str, Array], end_s: float) -> Call:
        with self._lock:
            self._breaker = self._breaker.request_sent()
        # Copies: the caller may reuse the arrays as soon as it has outputs.
        copies = {name: np.array(array, order="C") for name, array in feeds.items()}
        span = None if self._traces is None else self._traces.client_span()  # here: in the caller's thread
        call = Call(lambda client: self._infer(client, copies, end_s, span))
        self._calls.begin(call)
        return call

    def _check_server(self, client: Client) -> None:
        ready, reason = True, ""
        try:
            form = client.check_server(time.monotonic() + PROBE_S)
        except (ConnectionFailedError, AnswerError) as problem:
            ready, reason = False, str(problem)
        with self._lock:
            if ready:
                self._form = form
            self._breaker = self._breaker.probed(ready, time.monotonic(), random.random(), reason)

    def _infer(
        self, client: Client, feeds: Mapping[str, Array], end_s: float, span: Span | None
    ) -> dict[str, Array]:
        began_s, reason, outputs = time.monotonic(), "", None
        try:
            with span or nullcontext():
                headers = None if span is None else span.context.headers
                received = self._infer_with_retry(client, feeds, end_s, headers)
                self._sound.check(received)
            outputs = received
        except (ConnectionFailedError, AnswerError, EdgeKitError) as problem:
            reason = str(problem)
        took_s = time.monotonic() - began_s
        with self._lock:
            if outputs is not None or time.monotonic() >= end_s:
                self._remote.add(took_s)  # a lower bound for a request that timed out
            slow = took_s > (latest_start_s(self._deadline_s, self._local.p95_s()) or self._deadline_s)
            reason_shown = reason or f"it took {1000 * took_s:.0f} ms"
            now_s, chance = time.monotonic(), random.random()
            self._breaker = self._breaker.after_result(outputs is not None, slow, now_s, chance, reason_shown)
        if outputs is None:
            raise AnswerError(reason)
        return outputs

    def _infer_with_retry(
        self, client: Client, feeds: Mapping[str, Array], end_s: float, headers: Mapping[str, str] | None
    ) -> dict[str, Array]:
        """Retry once if the server cannot have started, or if its Retry-After is within the deadline."""
        stale = client.is_reused
        try:
            return client.infer(feeds, end_s, self._form.binary, headers)
        except ConnectionFailedError as problem:
            if not (problem.unsent or stale):
                raise
            pause_s = 0.0 if stale else RETRY_PAUSE_S * random.random()
            first: Exception = problem
        except AnswerError as problem:
            if problem.retry_after_s is None:
                raise
            pause_s, first = problem.retry_after_s, problem
        with self._lock:
            left = self._retries.spend()
            self._retries = left or self._retries
        if left is None or time.monotonic() + pause_s >= end_s:
            raise first
        time.sleep(pause_s)
        return client.infer(feeds, end_s, self._form.binary, headers)

    # --- inspection --------------------------------------------------------------------------------------

    def status(self) -> dict[str, Json]:
        """Return the current state.

        Keys: ``server``: ``closed`` (in use), ``open`` (not used), ``probing`` or ``half-open``; ``why``;
        ``p95_ms`` of the server and ``local_p95_ms``, None if unknown; requests run ``local``, ``remote``,
        and those of either that were ``late``.
        """
        with self._lock:
            times = {"p95_ms": self._remote.p95_s(ENOUGH), "local_p95_ms": self._local.p95_s()}
            shown: dict[str, Json] = {"server": self._breaker.state, "why": self._breaker.reason}
            shown |= {name: None if s is None else 1000 * s for name, s in times.items()}
            return shown | self._counts

    def close(self) -> None:
        """Stop the threads and close the connections; the session stays open. Closing twice is fine."""
        self._calls.close()
