"""Run times of a bundle's variants on this machine: measured once in the background, then used by sessions.

A child process (``time_variants.py``) runs the likely variants in turns. It counts the CPU time of one
thread, which other programs on a busy machine hardly change. The child keeps the times by machine and bundle.
Engines that it loads and the session does not use cost the app no memory, and a crash costs nothing.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.variant import Variant
from edgekit.system import json_records, timings
from edgekit.system.interrupts import Background
from edgekit.tensor_spec import Array, Json

if TYPE_CHECKING:
    import subprocess

DELAY_S = 2.0
"""Time from opening a session until its variants are measured: a short script never pays for it."""
MEASURED_S = 2.0
"""CPU time of the timed runs of all variants together. Loading them comes on top, once."""
MEASUREMENT_LIMIT_S = 600.0
"""A measurement that has not ended by then is killed. Nobody begins another one meanwhile."""
COMPARED_RUNS = 3
"""Runs of each runner in a comparison; the app waits for them once, between two requests."""


def recalled(bundle: Bundle) -> dict[str, tuple[float, str]]:
    """Return the CPU times of a run on one thread, measured on this machine: variant -> (ms, engine)."""
    variants = _record(bundle).get("variants")
    if not isinstance(variants, dict):
        return {}
    times = {}
    for variant in bundle.variants:
        timing = variants.get(variant.name)
        time_ms = timings.milliseconds_of(timing)
        engine = timing.get("engine") if isinstance(timing, dict) else None
        if variant.usable and time_ms is not None and isinstance(engine, str):
            times[variant.name] = (time_ms, engine)
    return times


def keep(bundle: Bundle, times: Mapping[str, tuple[float, str]]) -> bool:
    """Keep times in the form of :func:`recalled`. False if they cannot be written."""
    rows: Json = {name: {"p50_ms": time_ms, "engine": engine} for name, (time_ms, engine) in times.items()}
    return _write(bundle, {"variants": rows})


def measure(bundle: Bundle, names: Sequence[str], seconds: float) -> dict[str, tuple[float, str]]:
    """Measure variants in a child process now, and return the kept times in the form of :func:`recalled`."""
    if not why_unmeasured(bundle):
        _start_child(bundle, names, seconds).wait()
    return recalled(bundle)


def _start_child(bundle: Bundle, names: Sequence[str], seconds: float) -> subprocess.Popen[bytes]:
    import subprocess  # here: takes 9 ms

    nowhere = subprocess.DEVNULL
    arguments = [bundle.name, bundle.digest, str(seconds), *names]
    command = [sys.executable, "-m", "edgekit.runtime.time_variants", *arguments]
    return subprocess.Popen(command, stdin=nowhere, stdout=nowhere, stderr=nowhere)


def _record(bundle: Bundle) -> dict[str, Json]:
    folder = timings.timings_folder()
    record = json_records.recall(folder, _name(bundle), timings.TIMING_LIMIT_BYTES) if folder.is_dir() else {}
    return record if isinstance(record, dict) else {}


def _write(bundle: Bundle, record: Json) -> bool:
    return json_records.record(timings.timings_folder(), _name(bundle), record, timings.TIMINGS_LIMIT)


def _name(bundle: Bundle) -> str:
    return timings.timing_key(bundle.digest, "", 1, "variants")


class VariantTiming:
    """Times variants in a child process, started by a background thread after ``DELAY_S``.

    Args:
        names: Variants to time.
        on_done: Called in the thread once ``done`` is set.
    """

    def __init__(self, bundle: Bundle, names: Sequence[str], on_done: Callable[[], None]) -> None:
        self.done = False
        self._bundle, self._names, self._on_done = bundle, names, on_done
        self._child: subprocess.Popen[bytes] | None = None
        self._cancelled = Lock()  # released by ``cancel``
        self._cancelled.acquire()
        self._thread = Background(self._run, "edgekit-timing")

    def cancel(self) -> None:
        """End it. The next session measures."""
        if not self.done and self._cancelled.locked():
            self._cancelled.release()
            if self._child is not None:
                self._kill(self._child)

    def _run(self) -> None:
        # Another process may be measuring, or have measured. The mark also shows whether times can be kept.
        if not self._cancelled.acquire(timeout=DELAY_S) and not recalled(self._bundle) and self._claim():
            child = self._child = _start_child(self._bundle, self._names, MEASURED_S)
            end_s = time.monotonic() + MEASUREMENT_LIMIT_S
            while child.poll() is None:
                if self._cancelled.acquire(timeout=0.1) or time.monotonic() > end_s:
                    self._kill(child)
        self.done = True
        self._on_done()

    def _claim(self) -> bool:
        began = _record(self._bundle).get("began_s")
        if isinstance(began, (int, float)) and 0 <= time.time() - began < MEASUREMENT_LIMIT_S:
            return False
        return _write(self._bundle, {"began_s": time.time()})

    def _kill(self, child: subprocess.Popen[bytes]) -> None:
        child.kill()
        child.wait()
        if not recalled(self._bundle):
            _write(self._bundle, {})


def why_unmeasured(bundle: Bundle) -> str:
    """Return why the variants of a bundle cannot be measured in a child process, or ""."""
    if not sys.executable or getattr(sys, "frozen", False):
        return "this program can't start a Python process"
    return "" if os.path.isfile(bundle.name) else "the bundle is not a file"


class Runnable(Protocol):
    """A runner or a session."""

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run once."""


def compare(runners: Sequence[Runnable], feeds: Mapping[str, Array]) -> list[float]:
    """Measure the fastest of some runs of each, in ms, interleaved: a slow machine affects all."""
    best = [float("inf")] * len(runners)
    for _ in range(COMPARED_RUNS):
        for index, runner in enumerate(runners):
            began = time.perf_counter()
            runner.run(feeds)
            best[index] = min(best[index], 1000 * (time.perf_counter() - began))
    return best


def key(bundle: Bundle, variant: Variant, threads: int, kind: str, engine: str = "") -> str:
    """Return the key of a measurement of a variant on this machine.

    Args:
        variant: Identified by its files and options, not its name.
        engine: Its name and version. Empty if the record itself holds it: finding it out means importing the
            engine, and only the one that runs should be imported.
    """
    return timings.timing_key(artifact(bundle, variant), engine, threads, kind)


def artifact(bundle: Bundle, variant: Variant) -> str:
    """Return the identity of a variant: hash of its files, as the bundle declares them, and its options."""
    files = timings.digest_of({file: bundle.sha256(entry) for file, entry in variant.files.items()})
    return timings.run_digest(files, variant.options)


def median(values: Sequence[float]) -> float:
    """Return the median of at least one value."""
    ordered = sorted(values)  # the module statistics costs 4 ms to import
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
