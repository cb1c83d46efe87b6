"""Metrics of a session: time by stage, requests by outcome, fallbacks by reason.

    metrics = Metrics(session)
    answer = metrics.predict(frame)         # as session.predict, and counted
    metrics.snapshot()                      # JSON
    append(path, metrics.snapshot())        # a line of a .jsonl file

``prometheus.py`` exports a snapshot to Prometheus. Memory use is constant. Metrics contain nothing of an
image or a prediction, and no path: numbers and paths are removed from an engine's error messages.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sized
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.errors import UsageError
from edgekit.processing.latency_contract import END_TO_END
from edgekit.runtime.metrics.labelled_counts import Counts, FallbackCounts, StageTimes
from edgekit.runtime.outbox.outbox import Outbox
from edgekit.runtime.predictor import SessionProtocol
from edgekit.system.formats import strict_json
from edgekit.system.interrupts import pass_on
from edgekit.target import deferral
from edgekit.tensor_spec import Array, Json

if TYPE_CHECKING:
    from edgekit.runtime.traces.traces import TracedSession, Traces

FILE_LIMIT_BYTES = 16 << 20


class Metrics:
    """The metrics of one session. Thread-safe.

    Args:
        session: Its calls are counted if they are made through this object.
        traces: Records spans of each call and of its stages, if given.
    """

    def __init__(
        self, session: SessionProtocol, outbox: Outbox | None = None, *, traces: Traces | None = None
    ) -> None:
        self._session, self._outbox = session, outbox
        self._traces = traces
        self._runs: SessionProtocol | TracedSession = session if traces is None else traces.session(session)
        self._lock = threading.Lock()
        self._times, self._fallbacks = StageTimes(), FallbackCounts()
        self._outcomes: dict[str, int] = {}
        self._found = self._empty = 0
        self._deferrals, self._deferrals_seen = (0, 0), (0, 0)
        self._since_s = time.time()

    # --- calls, counted ----------------------------------------------------------------------------------

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run like ``Session.run``, and count the request."""
        began = time.perf_counter()
        try:
            outputs = self._runs.run(feeds)
        except BaseException:
            self.answered("failed")
            raise
        self.took({"infer": time.perf_counter() - began})
        self.answered("ok")
        return outputs

    def predict(self, frame: Array, order: str = "rgb", **options: Any) -> Any:
        """Predict like ``Session.predict``, and count the request."""
        runs = self._runs
        try:
            with nullcontext() if self._traces is None else self._traces.span("predict"):
                answer, seconds = timed_predict(runs, runs.run, frame, order, options)
        except BaseException:
            self.answered("failed")
            raise
        self.took(seconds)
        self.answered("ok", prediction=answer)
        return answer

    # --- counting ----------------------------------------------------------------------------------------

    def took(self, seconds: Mapping[str, float], engine: str | None = None) -> None:
        """Record the time of a request by stage; ``end_to_end`` is the sum.

        Args:
            engine: The one that ran it. None means the active one.
        """
        engine = self._session.active.engine if engine is None else engine
        with self._lock:
            whole_s = 0.0
            for stage, stage_s in seconds.items():
                self._times.record(stage, engine, stage_s)
                whole_s += stage_s
            self._times.record(END_TO_END, engine, whole_s)

    def answered(self, outcome: str, fell_back: bool | None = None, prediction: Any = None) -> None:
        """Count a request, and the fallbacks since the last one.

        Args:
            outcome: ``ok``, which becomes ``fallback`` if not the best variant ran it, or ``failed``.
            fell_back: Whether another variant than the best ran it; by default, whether one is active now.
            prediction: The task's prediction, counted by whether it has an object. None means that there is
                none.
        """
        session = self._session
        if outcome == "ok" and (session.fallbacks if fell_back is None else fell_back):
            outcome = "fallback"
        history = session.history
        now = _deferrals_of(session)
        with self._lock:
            if now is not None:
                before = self._deferrals_seen if now[0] >= self._deferrals_seen[0] else (0, 0)  # loaded anew
                runs, deferred = (t + n - b for t, n, b in zip(self._deferrals, now, before, strict=True))
                self._deferrals, self._deferrals_seen = (runs, deferred), now
            self._outcomes[outcome] = self._outcomes.get(outcome, 0) + 1
            if isinstance(prediction, Sized):
                is_empty = len(prediction) == 0
                self._found, self._empty = self._found + (not is_empty), self._empty + is_empty
            self._fallbacks.count_new(history)

    # --- reading -----------------------------------------------------------------------------------------

    @property
    def counts(self) -> Counts:
        """Requests so far: all of them, those that a fallback answered, those that failed, and predictions
        with and without an object."""
        with self._lock:
            outcomes, found, empty = dict(self._outcomes), self._found, self._empty
        fallback, failed = outcomes.get("fallback", 0), outcomes.get("failed", 0)
        return Counts(sum(outcomes.values()), fallback, failed, found, empty)

    def quantile(self, stage: str, q: float) -> float:
        """Return a quantile of a stage in seconds, over all engines; 0 if there are no values."""
        with self._lock:
            return self._times.quantile(stage, q)

    def snapshot(self) -> dict[str, Json]:
        """Return all metrics, as JSON. Times are in seconds, ``since`` and ``until`` are Unix times."""
        rows = self._rows()
        active, bundle = self._session.active, self._session.bundle
        with self._lock:
            return {
                "model": Path(str(bundle.manifest["source"]["file"])).stem,
                "version": str(bundle.manifest["source"]["sha256"])[:12],
                "bundle": str(bundle.digest)[:12],
                **active._asdict(),
                "since": self._since_s,
                "until": time.time(),
                "stages": self._times.as_json(),
                "outcomes": dict(self._outcomes),
                "fallbacks": self._fallbacks.as_json(),
                **({"deferrals": self._counted_deferrals()} if self._deferrals[0] else {}),
                **({} if rows is None else {"outbox": rows}),
            }

    def _counted_deferrals(self) -> dict[str, Json]:
        return {"answers": self._deferrals[0], "deferred": self._deferrals[1]}

    def _rows(self) -> dict[str, int] | None:
        """Return the outbox's counts; None if there is none, or its disk fails."""
        try:
            return None if self._outbox is None else self._outbox.counts()
        except Exception as problem:  # SQLite's, which is imported only with an outbox
            pass_on(problem)
            return None


def _deferrals_of(session: SessionProtocol) -> tuple[int, int] | None:
    """Return the number of answers and deferrals of the loaded variant, or None if it is not a deferral."""
    try:
        if session.active.engine != deferral.NAME:
            return None
        facts: Any = session.runner.facts()["deferral"]
    except (UsageError, KeyError):  # closed meanwhile, or another was loaded
        return None
    return facts["runs"], facts["deferred"]


def timed_predict(
    session: SessionProtocol | TracedSession,
    run: Callable[[Mapping[str, Array]], dict[str, Array]],
    frame: Array,
    order: str,
    options: Mapping[str, Any],
) -> tuple[Any, dict[str, float]]:
    """Predict like ``Session.predict`` with ``run``; return the prediction, and the seconds of each stage."""
    clock = time.perf_counter
    began = clock()
    feeds, placed = session.prepare(frame, order)
    prepared = clock()
    outputs = run(feeds)
    ran = clock()
    answer = session.decode(outputs, placed, **options)
    decoded = clock()
    return answer, {"prepare": prepared - began, "infer": ran - prepared, "decode_outputs": decoded - ran}


def append(
    path: str | os.PathLike[str], snapshot: Mapping[str, Json], limit_bytes: int = FILE_LIMIT_BYTES
) -> None:
    """Append a snapshot to a file of JSON lines.

    A file that would exceed ``limit_bytes`` is renamed to ``NAME.1`` first, replacing the old one.

    Raises:
        OSError: it cannot be written.
    """
    line = strict_json.encode(dict(snapshot)) + b"\n"
    try:
        if os.path.getsize(path) + len(line) > limit_bytes:
            os.replace(path, f"{os.fspath(path)}.1")
    except FileNotFoundError:
        pass
    with open(path, "ab") as file:
        file.write(line)  # one write: readers see whole lines
