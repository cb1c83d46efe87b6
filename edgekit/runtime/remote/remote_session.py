"""A session and a server that can run the same model: one of them answers, within the deadline.

    with RemoteSession(session, "http://10.0.0.5:8080", "detector", policy="remote-first") as both:
        answer = both.run(feeds)        # a dict of outputs, as session.run gives
        answer.path, answer.why         # "local", "the server had not answered after 31 ms"

Any server of the Open Inference Protocol v2. remote_policy.py decides, inference_protocol.py speaks; here are
the threads: one for each request that a server has not answered yet, at most four, none with ``local-only``.
The device runs in the caller's own thread.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np

from edgekit.errors import EdgeKitError, EngineError, UsageError
from edgekit.runtime.http_connection import ConnectionFailedError, HttpConnection
from edgekit.runtime.loading.output_checks import OutputChecks
from edgekit.runtime.remote.calls import Call, Calls
from edgekit.runtime.remote.inference_protocol import DATATYPES, AnswerError, Client
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
from edgekit.target.tensor_checks import misfit
from edgekit.tensors import Array, Json

if TYPE_CHECKING:
    import ssl

    from edgekit.runtime.predictor import SessionProtocol

PROBE_S = 2.0
"""For asking a server whether it is ready and has the model."""
RETRY_PAUSE_S = 0.01


class Answer(dict[str, Array]):
    """The outputs by name, and who gave them.

    Attributes:
        path: ``local`` or ``remote``.
        why: In words.
        took_ms: From the request to the answer.
    """

    def __init__(self, outputs: Mapping[str, Array], path: str, why: str, took_ms: float) -> None:
        super().__init__(outputs)
        self.path, self.why, self.took_ms = path, why, took_ms


class RemoteSession:
    """A session with a server beside it. Safe between threads, as the session is. The session stays open.

    Policies:
        ``local-only``: the device; no thread and no socket.
        ``local-first``: the device; the server where the device fails.
        ``remote-first``: the server; the device begins when the server is later than in 95 of 100 cases, and
        in any case early enough for the deadline.
        ``confidence``: the device; then the server about answers that the device is not sure of.

    Whether the server is there and has this model is found out in the background; until then, and while it is
    left alone because it failed or was slow, the device answers.

    Args:
        session: The device's half.
        url: The server's, before ``/v2``.
        model: Its name there.
        policy: One of the four.
        deadline_ms: Of an answer. The device's own part of it is what it takes; see ``Session(deadline_ms=)``
            for one that hangs.
        confidence: For that policy: from the device's outputs, how sure it is.
        threshold: From which confidence on the device's answer stands.
        version: Of the model on the server; empty: the server's choice.
        headers: Of every request, e.g. an authorization.
        context: For https; None: the system's certificates.

    Raises:
        UsageError: an argument does not fit, or the protocol has no form for the model's inputs or outputs.
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
    ) -> None:
        if policy not in POLICIES:
            raise UsageError(f"policy {policy!r} is unknown; there are {', '.join(POLICIES)}")
        if not 0 < deadline_ms < float("inf"):
            raise UsageError(f"deadline_ms must be a positive number, not {deadline_ms!r}")
        if (policy == "confidence") != (confidence is not None) or (confidence is None) != (
            threshold is None
        ):
            raise UsageError("confidence and threshold belong to policy 'confidence', which needs both")
        for spec in (*session.inputs, *session.outputs):
            if spec.dtype not in DATATYPES:
                raise UsageError(
                    f"{spec} has no form in the Open Inference Protocol; run it with the session alone"
                )
        self.session, self.policy = session, policy
        self._deadline_s = deadline_ms / 1000
        self._confidence, self._threshold = confidence, threshold or 0.0
        self._sound = OutputChecks(session.outputs, lambda: session.bundle.golden)
        self._lock = threading.Lock()
        self._local, self._remote = Rolling(), Rolling()
        self._breaker, self._retries, self._binary = Breaker(), Retries(), False
        self._counts = dict.fromkeys(("local", "remote", "late"), 0)

        def client() -> Client:
            wire = HttpConnection(url, headers, context)
            return Client(wire, model, session.inputs, session.outputs, version)

        client()  # what is wrong with the URL is told now
        self._calls = Calls(client)
        if policy != "local-only":
            self._why_not()  # ask the server whether it is there

    # --- answering ---------------------------------------------------------------------------------------

    def run(self, feeds: Mapping[str, Array]) -> Answer:
        """Run once, here or there.

        Args:
            feeds: As for ``Session.run``.

        Raises:
            UsageError: ``feeds`` does not fit, or the session is closed.
            NoVariantError, EngineError: the device failed, and no server answered in time.
        """
        began_s = time.monotonic()
        self._refuse_misfits(feeds)
        why_not = "" if self.policy == "local-only" else self._why_not()
        with self._lock:
            local_s, remote_s = self._local.p95_s(), self._remote.p95_s(ENOUGH)
        plan = decide(self.policy, self._deadline_s, local_s, remote_s, why_not)
        call = None
        if plan.remote_at_s is not None:
            call = self._ask(feeds, began_s + self._deadline_s)
            if plan.local_at_s is not None and call.wait(began_s + plan.local_at_s):
                return self._answer(call.outputs, "remote", plan.why, began_s)
        why = plan.why if call is None else call.missing(began_s)
        try:
            outputs = self._run_here(feeds)
        except EngineError as problem:
            return self._answer_of_failure(problem, feeds, call, why_not, began_s)
        if call is not None and call.outputs is not None:
            return self._answer(call.outputs, "remote", "it came while the device ran", began_s)
        if self._confidence is not None:
            return self._second(outputs, feeds, remote_s, why_not, began_s)
        return self._answer(outputs, "local", why, began_s)

    def _answer_of_failure(
        self,
        problem: EngineError,
        feeds: Mapping[str, Array],
        call: Call | None,
        why_not: str,
        began_s: float,
    ) -> Answer:
        """The device failed: the server's answer, or the device's error."""
        if call is None and self.policy != "local-only" and not why_not:
            call = self._ask(feeds, began_s + self._deadline_s)
        if call is None or not call.wait(began_s + self._deadline_s):
            raise problem
        return self._answer(call.outputs, "remote", f"the device failed: {problem}", began_s)

    def _second(
        self,
        outputs: Mapping[str, Array],
        feeds: Mapping[str, Array],
        remote_s: float | None,
        why_not: str,
        began_s: float,
    ) -> Answer:
        """The device's answer where it is sure of it, else the server's where that comes in time."""
        assert self._confidence is not None
        sure, end_s = float(self._confidence(outputs)), began_s + self._deadline_s
        left_s = end_s - time.monotonic()
        why = second_opinion(sure, self._threshold, left_s, remote_s, why_not)
        if not why:
            call = self._ask(feeds, end_s)
            if call.wait(end_s):
                return self._answer(call.outputs, "remote", f"confidence {sure:.3g} of the device", began_s)
            why = f"confidence {sure:.3g}, but {call.missing(began_s)}"
        return self._answer(outputs, "local", why, began_s)

    def _answer(self, outputs: Mapping[str, Array] | None, path: str, why: str, began_s: float) -> Answer:
        assert outputs is not None
        took_s = time.monotonic() - began_s
        with self._lock:
            self._counts[path] += 1
            self._counts["late"] += took_s > self._deadline_s
        return Answer(outputs, path, why, 1000 * took_s)

    def _run_here(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        began_s = time.monotonic()
        outputs = self.session.run(feeds)
        with self._lock:
            self._local.add(time.monotonic() - began_s)
        return outputs

    def _refuse_misfits(self, feeds: Mapping[str, Array]) -> None:
        """What a session refuses must not reach a server either."""
        inputs = self.session.inputs
        if len(feeds) != len(inputs):
            raise misfit(feeds, inputs)
        for spec in inputs:
            array = feeds.get(spec.name)
            fits = isinstance(array, np.ndarray) and array.shape == spec.shape
            if not fits or array is None or array.dtype != np.dtype(spec.dtype):
                raise misfit(feeds, inputs)

    # --- the server --------------------------------------------------------------------------------------

    def _why_not(self) -> str:
        """Why the server must not be asked now; begins to find out whether it may be again."""
        with self._lock:
            self._retries = self._retries.request()
            if self._breaker.probe_due(time.monotonic()) and self._calls.free:
                self._breaker = self._breaker.probing()
                self._calls.begin(Call(self._learn))
            return self._breaker.why_not or ("" if self._calls.free else "all connections wait for answers")

    def _ask(self, feeds: Mapping[str, Array], end_s: float) -> Call:
        with self._lock:
            self._breaker = self._breaker.asked()
        # Copies: the caller may use the arrays anew as soon as it has an answer.
        copies = {name: np.array(array, order="C") for name, array in feeds.items()}
        call = Call(lambda client: self._infer(client, copies, end_s))
        self._calls.begin(call)
        return call

    def _learn(self, client: Client) -> None:
        ready, why = True, ""
        try:
            binary = client.learn(time.monotonic() + PROBE_S)
        except (ConnectionFailedError, AnswerError) as problem:
            ready, why = False, str(problem)
        with self._lock:
            if ready:
                self._binary = binary
            self._breaker = self._breaker.probed(ready, time.monotonic(), random.random(), why)

    def _infer(self, client: Client, feeds: Mapping[str, Array], end_s: float) -> dict[str, Array]:
        began_s, why, outputs = time.monotonic(), "", None
        try:
            outputs = self._infer_with_retry(client, feeds, end_s)
            self._sound.check(outputs)
        except (ConnectionFailedError, AnswerError, EdgeKitError) as problem:
            why, outputs = str(problem), None
        took_s = time.monotonic() - began_s
        with self._lock:
            if outputs is not None or time.monotonic() >= end_s:
                self._remote.add(took_s)  # of one that never came, what is known: it takes longer
            slow = took_s > (latest_start_s(self._deadline_s, self._local.p95_s()) or self._deadline_s)
            told = why or f"it took {1000 * took_s:.0f} ms"
            good = outputs is not None
            self._breaker = self._breaker.heard(good, slow, time.monotonic(), random.random(), told)
        if outputs is None:
            raise AnswerError(why)
        return outputs

    def _infer_with_retry(self, client: Client, feeds: Mapping[str, Array], end_s: float) -> dict[str, Array]:
        """Once more where the server cannot have begun, and where it named a time within the deadline."""
        stale = client.kept
        try:
            return client.infer(feeds, end_s, self._binary)
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
        return client.infer(feeds, end_s, self._binary)

    # --- looking -----------------------------------------------------------------------------------------

    def status(self) -> dict[str, Json]:
        """How things stand.

        Keys: ``server``: ``closed`` (it is asked), ``open`` (left alone), ``probing`` or ``half-open``;
        ``why``; ``p95_ms`` of the server and ``local_p95_ms``, None where nobody knows; answers ``local``,
        ``remote``, and those of either that were ``late``.
        """
        with self._lock:
            times = {"p95_ms": self._remote.p95_s(ENOUGH), "local_p95_ms": self._local.p95_s()}
            shown: dict[str, Json] = {"server": self._breaker.state, "why": self._breaker.why}
            shown |= {name: None if s is None else 1000 * s for name, s in times.items()}
            return shown | self._counts

    def close(self) -> None:
        """End the threads and connections; the session stays open. Closing twice is fine."""
        self._calls.close()

    def __enter__(self) -> RemoteSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
