"""Throughput and latency over streams and threads: several Sessions at once, each on its own thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import TypedDict

import numpy as np

from edgekit.bundle.bundle import Bundle
from edgekit.compiler.evaluate.run_bundle import golden_inputs
from edgekit.errors import UsageError
from edgekit.runtime import Session
from edgekit.system.formats.plain_text import milliseconds, table
from edgekit.system.progress import counted

MAX_STREAMS = 64


class SweepPoint(TypedDict):
    """One combination."""

    variant: str
    streams: int
    threads: int
    """Of each stream."""
    per_second: float
    """Inferences of all streams together."""
    p50_ms: float
    p95_ms: float


def parse_sweep(text: str) -> list[tuple[int, int]]:
    """Parse the numbers of streams and threads of each point.

    >>> parse_sweep("1x2,2x1")
    [(1, 2), (2, 1)]
    """
    points = []
    for part in text.split(","):
        streams, _, threads = part.strip().partition("x")
        if not (streams.isdecimal() and threads.isdecimal() and 1 <= int(streams) <= MAX_STREAMS):
            limit = f"with up to {MAX_STREAMS} streams"
            raise UsageError(f"--sweep must be streams x threads, e.g. 1x1,1x2,2x1, {limit}; not {part!r}")
        points.append((int(streams), int(threads)))
    return points


def sweep(
    bundle: Bundle, variant: str, points: Sequence[tuple[int, int]], *, seconds: float
) -> list[SweepPoint]:
    """Measure every combination, one after the other.

    Args:
        points: Numbers of streams and threads of each combination.
        seconds: Duration of each combination, in seconds.
    """
    golden_inputs(bundle)  # refuses a bundle without any
    each_in_turn = counted(points, "points", name="measuring", describe=lambda point: "{}x{}".format(*point))
    return [_point(bundle, variant, streams, threads, seconds) for streams, threads in each_in_turn]


def _point(bundle: Bundle, variant: str, streams: int, threads: int, seconds: float) -> SweepPoint:
    feeds = bundle.golden[0][0]
    series: list[list[float]] = [[] for _ in range(streams)]
    failed: list[BaseException] = []
    ready = threading.Barrier(streams + 1)
    with ExitStack() as stack:
        sessions = [
            stack.enter_context(Session(bundle, variant=variant, strict=True, threads=threads))
            for _ in range(streams)
        ]

        def stream(session: Session, inputs: list[float]) -> None:
            try:
                session.run(feeds)
                ready.wait()
                end = time.perf_counter() + seconds
                while time.perf_counter() < end or not inputs:
                    started = time.perf_counter()
                    session.run(feeds)
                    inputs.append(time.perf_counter() - started)
            except BaseException as problem:
                failed.append(problem)
                ready.abort()

        workers = [threading.Thread(target=stream, args=pair) for pair in zip(sessions, series, strict=True)]
        for worker in workers:
            worker.start()
        with suppress(threading.BrokenBarrierError):  # told below
            ready.wait()
        started = time.perf_counter()
        for worker in workers:
            worker.join()
        whole = time.perf_counter() - started
    if failed:
        raise next((p for p in failed if not isinstance(p, threading.BrokenBarrierError)), failed[0])
    times = [second for stream_times in series for second in stream_times]
    p50, p95 = (round(1000 * float(q), 4) for q in np.quantile(times, [0.5, 0.95]))
    return {
        "variant": variant,
        "streams": streams,
        "threads": threads,
        "per_second": round(len(times) / whole, 2),
        "p50_ms": p50,
        "p95_ms": p95,
    }


def render_sweep(points: Sequence[SweepPoint]) -> str:
    columns = ("variant", "streams", "threads each", "a second", "p50", "p95")
    rows = [
        (
            p["variant"],
            str(p["streams"]),
            str(p["threads"]),
            f"{p['per_second']:.1f}",
            milliseconds(p["p50_ms"]),
            milliseconds(p["p95_ms"]),
        )
        for p in points
    ]
    return "\n".join(table(columns, rows))
