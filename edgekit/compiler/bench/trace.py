"""Trace of a pipeline of frames for Perfetto: which thread prepared, ran and decoded which frame, and when.

The file is in Chrome's Trace Event Format (JSON object form), which https://ui.perfetto.dev and
chrome://tracing open. Times are in microseconds from the first frame.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgekit.bundle.bundle import Bundle
from edgekit.compiler.bench.cascade import golden_picture
from edgekit.errors import UsageError
from edgekit.runtime import Session
from edgekit.runtime.streaming.stream import Stream
from edgekit.system.atomic_files import write_atomically
from edgekit.system.progress import counted

FRAMES = 60
STEPS = {"prepare": "prepare", "run": "infer", "decode": "decode_outputs"}
"""Method of a session -> name of its span, which is that of the stage in metrics and latency contracts."""


class _Recorded:
    """Session whose calls in a stream are recorded as spans."""

    def __init__(self, session: Session, events: list[dict[str, Any]]) -> None:
        self._session, self._events, self._counts = session, events, dict[str, int]()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._session, name)
        if name not in STEPS:
            return method

        def recorded(*arguments: Any, **options: Any) -> Any:
            number = self._counts[name] = self._counts.get(name, -1) + 1
            started = time.perf_counter()
            try:
                return method(*arguments, **options)
            finally:
                self._events.append(_span(STEPS[name], started, frame=number))

        return recorded


def _span(name: str, started_s: float, **more: Any) -> dict[str, Any]:
    """Return a complete event, whose times are still in seconds of ``time.perf_counter``."""
    ended_s, thread = time.perf_counter(), threading.get_native_id()
    times = {"ts": started_s, "dur": ended_s - started_s}
    return {
        "name": name,
        "cat": "edgekit",
        "ph": "X",
        **times,
        "pid": os.getpid(),
        "tid": thread,
        "args": more,
    }


def write_trace(
    bundle: Bundle, path: Path, *, engine: str | None, variant: str | None, threads: int | None
) -> int:
    """Run FRAMES frames through a stream and write their trace; return the number of spans.

    Raises:
        UsageError: the bundle has no card for images, or the file can't be written.
        NoVariantError: no variant of the bundle works here.
    """
    picture = golden_picture(bundle)
    if picture is None:
        raise UsageError(f"--trace needs a card whose input is an image; {bundle.name} has none")
    events: list[dict[str, Any]] = []
    started = time.perf_counter()
    with Session(
        bundle, engine=engine, variant=variant, strict=bool(engine or variant), threads=threads
    ) as session:
        events.append(_span("load", started, variant=session.active.variant, engine=session.active.engine))
        frames: Iterator[Any] = counted([picture] * FRAMES, "frames", name="tracing")
        for _ in Stream(_Recorded(session, events), frames, workers=1):
            pass
        active = session.active
    for event in events:
        event["ts"], event["dur"] = round(1e6 * (event["ts"] - started), 3), round(1e6 * event["dur"], 3)
    names = {
        event["tid"]: event["name"] for event in sorted(events, key=lambda event: event["ts"], reverse=True)
    }
    process, label = {"pid": os.getpid()}, f"edgekit {active.variant} on {active.engine}"
    described = [{"ph": "M", "name": "process_name", "args": {"name": label}, **process}]
    described += [
        {"ph": "M", "name": "thread_name", "tid": thread, "args": {"name": name}, **process}
        for thread, name in names.items()
    ]
    document = {
        "traceEvents": described + sorted(events, key=lambda event: event["ts"]),
        "displayTimeUnit": "ms",
    }
    try:
        write_atomically(path, [json.dumps(document, separators=(",", ":")).encode()])
    except OSError as problem:
        raise UsageError(f"can't write {path}: {problem.strerror}; choose another path") from None
    return len(events)
