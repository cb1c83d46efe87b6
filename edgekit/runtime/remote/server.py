"""One server of a ``RemoteSession``: whether it may be used now, how long it takes, and its connections."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING

import numpy as np

from edgekit.errors import EdgeKitError
from edgekit.runtime.http_connection import ConnectionFailedError
from edgekit.runtime.remote.calls import Call, RemoteCalls
from edgekit.runtime.remote.inference_protocol import AnswerError, Client, ServerForm
from edgekit.runtime.remote.policy import ENOUGH, Breaker, Retries, Rolling
from edgekit.tensor_spec import Array, Json

if TYPE_CHECKING:
    from edgekit.runtime.traces.traces import Span

PROBE_S = 2.0
"""Timeout of the readiness check, which includes the model's metadata."""
RETRY_PAUSE_S = 0.01


class Server:
    """A server, with at most four open requests. Thread-safe.

    Args:
        client: Makes a connection.
        check: Checks the outputs that it returned. Raises what is wrong.
        useful_s: Time after which an answer is too late to be useful, in seconds.
    """

    def __init__(
        self,
        url: str,
        client: Callable[[], Client],
        check: Callable[[Mapping[str, Array]], None],
        useful_s: Callable[[], float],
    ) -> None:
        self.url = url
        self._check, self._useful_s = check, useful_s
        self._lock = threading.Lock()
        self._times = Rolling()
        self._breaker, self._retries, self._form = Breaker(), Retries(), ServerForm()
        self._calls = RemoteCalls(client)

    @property
    def p95_s(self) -> float | None:
        """Return its 95th percentile in seconds, or None after too few requests."""
        with self._lock:
            return self._times.p95_s(ENOUGH)

    @property
    def expected_s(self) -> float:
        """Return the time that one more request may take; 0 while that is unknown."""
        return (self.p95_s or 0.0) * (1 + self._calls.under_way)

    def objection(self, largest: bool) -> str:
        """Return the reason that it must not be used now, or "". Start a probe if one is due.

        Args:
            largest: Whether the request has the largest of the model's shapes.
        """
        with self._lock:
            self._retries = self._retries.request()
            if self._breaker.probe_due(time.monotonic()) and self._calls.free:
                self._breaker = self._breaker.probing()
                self._calls.begin(Call(self._probe))
            refusal = self._breaker.refusal or ("" if self._calls.free else "all connections are in use")
        if not refusal and not largest and not self._form.all_shapes:
            return "the server runs the largest of the bundle's shapes only"
        return refusal

    def send(self, feeds: Mapping[str, Array], end_s: float, span: Span | None) -> Call:
        """Begin a request that must be answered by ``end_s``."""
        with self._lock:
            self._breaker = self._breaker.request_sent()
        # Copies: the caller may reuse the arrays as soon as it has outputs.
        copies = {name: np.array(array, order="C") for name, array in feeds.items()}
        call = Call(lambda client: self._infer(client, copies, end_s, span))
        self._calls.begin(call)
        return call

    def status(self) -> dict[str, Json]:
        """Return its state, the reason for it, and its p95 in ms."""
        p95_s = self.p95_s
        with self._lock:
            return {
                "server": self._breaker.state,
                "why": self._breaker.reason,
                "p95_ms": None if p95_s is None else 1000 * p95_s,
            }

    def close(self) -> None:
        """Stop the threads and close the connections."""
        self._calls.close()

    def _probe(self, client: Client) -> None:
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
                self._check(received)
            outputs = received
        except (ConnectionFailedError, AnswerError, EdgeKitError) as problem:
            reason = str(problem)
        took_s = time.monotonic() - began_s
        slow = took_s > self._useful_s()
        with self._lock:
            if outputs is not None or time.monotonic() >= end_s:
                self._times.add(took_s)  # a lower bound for a request that timed out
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
