"""A session with a server that runs the same model: either produces the outputs, within the deadline.

    with RemoteSession(session, "http://10.0.0.5:8080", "detector", policy="remote-first") as both:
        answer = both.run(feeds)        # a dict of outputs, as session.run returns
        answer.path, answer.reason         # "local", "the server did not respond within 31 ms"

Any server of the Open Inference Protocol v2. policy.py decides, inference_protocol.py encodes; this module
waits: each open request to a server has a thread (server.py), and the device runs in the caller's.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from edgekit.errors import EngineError, UsageError
from edgekit.runtime.http_connection import HttpConnection
from edgekit.runtime.loading.output_checks import OutputChecks, non_finite_inputs
from edgekit.runtime.remote.calls import Call
from edgekit.runtime.remote.inference_protocol import DATATYPES, Client
from edgekit.runtime.remote.policy import POLICIES, Rolling, decide, latest_start_s, second_opinion
from edgekit.runtime.remote.server import Server
from edgekit.system.closing import Closing
from edgekit.target.tensor_checks import fitted
from edgekit.tensor_spec import Array, Json

if TYPE_CHECKING:
    import ssl

    from edgekit.runtime.predictor import SessionProtocol
    from edgekit.runtime.traces.traces import Span, Traces

EXPLORED = 0.05
"""Share of the requests that go to any of several servers, so that the times of all stay current."""


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
        url: The server's, without ``/v2``; or those of several servers of the same model. A request goes to
            the one that will probably answer first, and to the next one if that fails.
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
        url: str | Sequence[str],
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
        urls = [url] if isinstance(url, str) else list(dict.fromkeys(url))
        if not urls:
            raise UsageError("url must name at least one server")
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
        self._local = Rolling()
        self._counts = dict.fromkeys(("local", "remote", "late"), 0)
        sound = OutputChecks(session.outputs, lambda: session.bundle.golden, session.bundle.shapes)

        def client(url: str) -> Client:
            wire = HttpConnection(url, headers, context)
            return Client(wire, model, session.bundle.shapes, version)

        for address in urls:
            client(address)  # validates it
        self._servers = [
            Server(address, partial(client, address), sound.check, self._useful_s) for address in urls
        ]
        if policy != "local-only":
            for server in self._servers:
                server.objection(largest=True)  # starts the readiness check

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
        server, objection = self._servers[0], ""
        if self.policy != "local-only":
            server, objection = self._choose(feeds)
            if non_finite_inputs(feeds):  # the server would refuse it, and be taken for a faulty one
                objection = "an input is not finite"
        with self._lock:
            local_s = self._local.p95_s()
        remote_s = server.p95_s
        plan = decide(self.policy, self._deadline_s, local_s, remote_s, objection)
        call = None
        if plan.remote_at_s is not None and plan.local_at_s is not None:
            call = self._ask(server, feeds, began_s, began_s + plan.local_at_s)
            if call.outputs is not None:
                return self._answer(call.outputs, "remote", plan.reason, began_s)
        reason = plan.reason if call is None else call.missing(began_s)
        try:
            outputs = self._run_local(feeds)
        except EngineError as problem:
            usable = None if objection or self.policy == "local-only" else server
            return self._after_local_failure(problem, feeds, call, usable, began_s, span)
        if call is not None and call.outputs is not None:
            return self._answer(call.outputs, "remote", "it responded while the device ran", began_s)
        if span is not None and (call is not None or (self.policy == "remote-first" and objection)):
            span.fell_back("remote", "local", reason)
        if self._confidence is not None:
            return self._confirm(outputs, feeds, server, objection, began_s)
        return self._answer(outputs, "local", reason, began_s)

    def _ask(self, server: Server, feeds: Mapping[str, Array], began_s: float, until_s: float) -> Call:
        """Send a request; if its server fails before ``until_s``, to the next one that may be used."""
        tried = [server]
        while True:
            call = self._send(server, feeds, began_s + self._deadline_s)
            if call.wait(until_s) or not call.problem or len(tried) == len(self._servers):
                return call
            server, objection = self._choose(feeds, tried)
            tried.append(server)
            if objection:
                return call

    def _after_local_failure(
        self,
        problem: EngineError,
        feeds: Mapping[str, Array],
        call: Call | None,
        server: Server | None,
        began_s: float,
        span: Span | None,
    ) -> RemoteResult:
        if call is None and server is not None:
            call = self._ask(server, feeds, began_s, began_s + self._deadline_s)
        if call is not None and span is not None:
            span.fell_back("local", "remote", str(problem))
        if call is None or not call.wait(began_s + self._deadline_s):
            raise problem
        return self._answer(call.outputs, "remote", f"the device failed: {problem}", began_s)

    def _confirm(
        self,
        outputs: Mapping[str, Array],
        feeds: Mapping[str, Array],
        server: Server,
        objection: str,
        began_s: float,
    ) -> RemoteResult:
        assert self._confidence is not None
        device_confidence, end_s = float(self._confidence(outputs)), began_s + self._deadline_s
        left_s = end_s - time.monotonic()
        reason = second_opinion(device_confidence, self._threshold, left_s, server.p95_s, objection)
        if not reason:
            call = self._ask(server, feeds, began_s, end_s)
            if call.outputs is not None:
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

    # --- the servers -------------------------------------------------------------------------------------

    def _choose(self, feeds: Mapping[str, Array], tried: Collection[Server] = ()) -> tuple[Server, str]:
        """Return the server that will probably answer first, and the reason not to use it, or ""."""
        largest = all(feeds[spec.name].shape == spec.shape for spec in self.session.inputs)
        objections = {server: server.objection(largest) for server in self._servers if server not in tried}
        usable = [server for server, objection in objections.items() if not objection]
        if not usable:
            return next(iter(objections.items()))
        random.shuffle(usable)  # while no times are known, all are equal
        if random.random() < EXPLORED:
            return usable[0], ""
        return min(usable, key=lambda server: server.expected_s), ""

    def _send(self, server: Server, feeds: Mapping[str, Array], end_s: float) -> Call:
        span = None if self._traces is None else self._traces.client_span()  # here: in the caller's thread
        return server.send(feeds, end_s, span)

    def _useful_s(self) -> float:
        with self._lock:
            return latest_start_s(self._deadline_s, self._local.p95_s()) or self._deadline_s

    # --- inspection --------------------------------------------------------------------------------------

    def status(self) -> dict[str, Json]:
        """Return the current state.

        Keys: ``server``: ``closed`` (in use), ``open`` (not used), ``probing`` or ``half-open``; ``why``;
        ``p95_ms`` of the server and ``local_p95_ms``, None if unknown; requests run ``local``, ``remote``,
        and those of either that were ``late``. With several servers, the first three are the first one's, and
        ``servers`` has them by URL.
        """
        shown = self._servers[0].status()
        if len(self._servers) > 1:
            shown["servers"] = {server.url: server.status() for server in self._servers}
        with self._lock:
            local_s = self._local.p95_s()
            return {**shown, "local_p95_ms": None if local_s is None else 1000 * local_s, **self._counts}

    def close(self) -> None:
        """Stop the threads and close the connections; the session stays open. Closing twice is fine."""
        for server in self._servers:
            server.close()
