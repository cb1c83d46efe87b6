"""How a stream uses the cores: N runs of one thread at once, or one run of N threads.

Measured, then remembered. Which is faster depends on the model, the engine and the chip: small layers do not
fill many threads, and memory may not feed many runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgekit.errors import EdgeKitError, UsageError, reason_of
from edgekit.runtime.fallback.policy import EQUAL_RATIO
from edgekit.runtime.loading import local_timings
from edgekit.runtime.loading.local_timings import median
from edgekit.runtime.streaming.replica import Replica, variant_of
from edgekit.system import timings
from edgekit.tensors import Array

if TYPE_CHECKING:
    from edgekit.runtime.predictor import SessionProtocol

ROUNDS, ROUND_S, MEASURED_S = 5, 0.05, 2.0
"""Rounds of the comparison, about how long one side of a round takes, and when no further round begins."""

Run = Callable[[Mapping[str, Array]], dict[str, Array]]


class Parallelism:
    """The runs that a stream may make at once.

    Attributes:
        workers: How many.
        threads: Threads of each.
        ratio: How much faster N runs of one thread were than one of N threads; None where nobody measured.
        runners: One for each worker.
    """

    def __init__(
        self, session: SessionProtocol, beside: Sequence[Replica], threads: int, note: str = ""
    ) -> None:
        self.runners: list[SessionProtocol | Replica] = [*beside]
        if threads == session.threads:  # the session's own runner is as good as any
            self.runners.append(session)
        self.workers = len(self.runners)
        self.threads = threads
        self.ratio: float | None = None
        self._beside = list(beside)
        self._note = note

    def notes(self) -> tuple[str, ...]:
        """What went otherwise than planned."""
        failed = dict.fromkeys(each.failed for each in self._beside if each.failed)
        notes = tuple(f"a worker failed, the session answers for it: {reason}" for reason in failed)
        return notes if not self._note else (self._note, *notes)

    def close(self) -> None:
        """Free the workers' runners."""
        for each in self._beside:
            each.close()

    def __repr__(self) -> str:
        return f"<Plan: {self.workers} x {self.threads} threads>"


def planned(session: SessionProtocol, workers: int | None) -> Parallelism:
    """The plan for a session's stream.

    Args:
        session: Its threads are all that may be used.
        workers: As wished, each of one thread; 1: the session's own runner. None: the faster of 1 and as many
            as the session has threads. Measuring takes some two seconds, once a variant, engine version and
            device.

    Raises:
        UsageError: several are wished of a session that has a deadline or is closed.
    """
    count = session.threads if workers is None else workers
    if count == 1:
        return Parallelism(session, (), session.threads)
    key = _key(session)
    known = timings.recall(key) if workers is None else None
    if known is not None and known.get("workers") == 1:
        return Parallelism(session, (), session.threads)
    # Where the session has one thread, its runner is one of the workers'.
    beside: list[Replica] = []
    for _ in range(count - (session.threads == 1)):
        try:
            beside.append(Replica(session, session.active.variant, 1))
        except (EdgeKitError, OSError, MemoryError) as problem:
            for each in beside:
                each.close()
            if workers is not None and isinstance(problem, UsageError):
                raise
            note = (
                f"{session.active.variant} did not load once more, so one worker runs: {reason_of(problem)}"
            )
            return Parallelism(session, (), session.threads, note)
    plan = Parallelism(session, beside, 1)
    if workers is not None or known is not None:
        return plan
    one_ms, many_ms = compared(session.run, [each.run for each in plan.runners], _feeds(session))
    chosen = plan if one_ms > many_ms * EQUAL_RATIO else Parallelism(session, (), session.threads)
    chosen.ratio = one_ms / many_ms
    if chosen is not plan:
        plan.close()
    timing = {"p50_ms": min(one_ms, many_ms), "workers": chosen.workers, "ratio": chosen.ratio}
    timings.record(key, timing)
    return chosen


def compared(one: Run, many: Sequence[Run], feeds: Mapping[str, Array]) -> tuple[float, float]:
    """Milliseconds a run when ``one`` makes all, and when ``many`` share them; medians of rounds in turns."""
    for run in (one, *many):
        run(feeds)  # the first is slower than all others
    began = time.perf_counter()
    one(feeds)
    each = max(1, round(ROUND_S / max(time.perf_counter() - began, 1e-6) / len(many)))
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + MEASURED_S
    while len(times[0]) < ROUNDS and (not times[0] or time.perf_counter() < end):
        for runs, took in (([one], times[0]), (many, times[1])):
            count = each * len(many) // len(runs)
            took.append(1000 * _together(runs, feeds, count) / (each * len(many)))
    return median(times[0]), median(times[1])


def _together(runs: Sequence[Run], feeds: Mapping[str, Array], count: int) -> float:
    """Seconds until each of ``runs``, in a thread of its own, has run so often."""

    def repeat(run: Run) -> None:
        for _ in range(count):
            run(feeds)

    threads = [threading.Thread(target=repeat, args=(run,), name="edgekit-measure") for run in runs]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


def _feeds(session: SessionProtocol) -> Mapping[str, Any]:
    golden = session.bundle.golden
    return golden[0][0] if golden else {spec.name: spec.zeros() for spec in session.inputs}


def _key(session: SessionProtocol) -> str:
    variant, engine = variant_of(session, session.active.variant), session.active.engine
    return local_timings.key(session.bundle, variant, session.threads, "stream", engine)
