"""Use of the cores by a stream: N single-threaded runs at once, or one run with N threads.

Measured once, then cached. Which is faster depends on the model, the engine and the chip: small layers do not
use many threads well, and memory bandwidth may limit parallel runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgekit.bundle.speed_order import EQUAL_RATIO
from edgekit.errors import EdgeKitError, UsageError, reason_of
from edgekit.runtime import local_timings
from edgekit.runtime.fallback.policy import PENDING
from edgekit.runtime.local_timings import median
from edgekit.runtime.streaming.replica import Replica, variant_of
from edgekit.system import timings
from edgekit.target.registry import ACCELERATOR
from edgekit.tensor_spec import Array

if TYPE_CHECKING:
    from edgekit.runtime.predictor import SessionProtocol

ROUNDS, ROUND_S, MEASURED_S = 5, 0.05, 2.0
"""Rounds of the comparison, approximate time of one side of a round, and time limit of the comparison."""

STAGES_GAIN = 1.1
"""One run with all threads must be so much faster than parallel ones, except for a live source, whose frames
should be answered soon: the threads of the other stages disturb a run's threads at each of its layers. Where
runs alone took equally long, two workers made 1.86 times the frames of a loop, and one with two threads 1.61.
"""

Run = Callable[[Mapping[str, Array]], dict[str, Array]]


class Parallelism:
    """The runs that a stream makes in parallel.

    Attributes:
        ratio: Speedup of N single-threaded runs over one run with N threads; None if not measured.
    """

    def __init__(
        self, session: SessionProtocol, replicas: Sequence[Replica], threads: int, note: str = ""
    ) -> None:
        self.runners: list[SessionProtocol | Replica] = [*replicas]
        if threads == session.threads:  # the session's own runner can be a worker too
            self.runners.append(session)
        self.workers = len(self.runners)
        self.threads = threads
        self.ratio: float | None = None
        self._replicas = list(replicas)
        self._note = note

    def notes(self) -> tuple[str, ...]:
        """Return the deviations from the plan, e.g. a failed worker."""
        failed = dict.fromkeys(replica.failed for replica in self._replicas if replica.failed)
        notes = tuple(f"a worker failed, its frames run on the session: {reason}" for reason in failed)
        return notes if not self._note else (self._note, *notes)

    def close(self) -> None:
        """Free the workers' runners."""
        for replica in self._replicas:
            replica.close()

    def __repr__(self) -> str:
        return f"<Parallelism: {self.workers} x {self.threads} threads>"


def choose_parallelism(session: SessionProtocol, workers: int | None, newest: bool = False) -> Parallelism:
    """Return the parallelism of a session's stream.

    Args:
        workers: The number of single-threaded workers. 1 means the session's own runner, None the faster of
            1 and the session's thread count. Measuring takes about two seconds, once per variant, engine
            version and device. On a GPU or an NPU it is 1, also while a requested one is being verified: its
            stage overlaps with those on the CPU, and several runs of it would take turns.

    Raises:
        UsageError: several workers for a session that is closed.
    """
    count = session.threads if workers is None else workers
    if count == 1 or (workers is None and _on_accelerator(session)):
        return Parallelism(session, (), session.threads)
    key = _key(session)
    min_ratio = EQUAL_RATIO if newest else 1 / STAGES_GAIN
    stored = timings.recall(key, {"ratio": float}) if workers is None else None
    if stored is not None and stored["ratio"] <= min_ratio:
        return Parallelism(session, (), session.threads)
    # A session with one thread is one of the workers itself.
    replicas: list[Replica] = []
    for _ in range(count - (session.threads == 1)):
        try:
            replicas.append(Replica(session, session.active.variant, 1))
        except (EdgeKitError, OSError, MemoryError) as problem:
            for replica in replicas:
                replica.close()
            if workers is not None and isinstance(problem, UsageError):
                raise
            note = f"{session.active.variant} did not load again, so one worker runs: {reason_of(problem)}"
            return Parallelism(session, (), session.threads, note)
    plan = Parallelism(session, replicas, 1)
    if workers is not None or stored is not None:
        return plan
    one_ms, many_ms = compared(session.run, [replica.run for replica in plan.runners], _feeds(session))
    ratio = one_ms / many_ms
    chosen = plan if ratio > min_ratio else Parallelism(session, (), session.threads)
    chosen.ratio = ratio
    if chosen is not plan:
        plan.close()
    timings.record(key, {"p50_ms": min(one_ms, many_ms), "ratio": ratio})
    return chosen


def compared(one: Run, many: Sequence[Run], feeds: Mapping[str, Array]) -> tuple[float, float]:
    """Measure the milliseconds per run on ``one``, and in parallel on ``many``. Return the medians of
    interleaved rounds."""
    for run in (one, *many):
        run(feeds)  # warm-up
    began = time.perf_counter()
    one(feeds)
    repeats = max(1, round(ROUND_S / max(time.perf_counter() - began, 1e-6) / len(many)))
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + MEASURED_S
    while len(times[0]) < ROUNDS and (not times[0] or time.perf_counter() < end):
        for runs, took in (([one], times[0]), (many, times[1])):
            count = repeats * len(many) // len(runs)
            took.append(1000 * _together(runs, feeds, count) / (repeats * len(many)))
    return median(times[0]), median(times[1])


def _together(runs: Sequence[Run], feeds: Mapping[str, Array], count: int) -> float:
    """Measure the seconds until each of ``runs``, in a separate thread, has run ``count`` times."""

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


def _on_accelerator(session: SessionProtocol) -> bool:
    """Return whether the session runs on an accelerator, or is verifying one that was requested."""
    if any(hop.reason == PENDING.reason for hop in session.fallbacks):
        return True
    return ACCELERATOR in variant_of(session, session.active.variant).options


def _feeds(session: SessionProtocol) -> Mapping[str, Any]:
    golden = session.bundle.golden
    return golden[0][0] if golden else {spec.name: spec.zeros() for spec in session.inputs}


def _key(session: SessionProtocol) -> str:
    variant, engine = variant_of(session, session.active.variant), session.active.engine
    return local_timings.key(session.bundle, variant, session.threads, "stream", engine)
