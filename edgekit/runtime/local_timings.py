"""Run times of a bundle's variants on this machine, as sessions measured them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.variant import Variant
from edgekit.system import timings
from edgekit.tensor_spec import Array

KIND = "session"
"""Session.run as the app calls it; builds time the bare engine."""
COMPARED_RUNS = 3
"""Runs of each runner in a comparison; the app waits for them once, between two requests."""


def recalled(bundle: Bundle, threads: int) -> dict[str, tuple[float, str]]:
    """Return the times that sessions measured on this machine: variant -> (ms, engine)."""
    usable = [variant for variant in bundle.variants if variant.usable]
    if len(usable) < 2 or not timings.timings_folder().is_dir():
        return {}
    times = {}
    for variant in usable:
        timing = timings.recall(key(bundle, variant, threads, KIND), {"engine": str, "threads": int})
        if timing is not None:
            times[variant.name] = (float(timing["p50_ms"]), timing["engine"])
    return times


def remember(bundle: Bundle, variant: Variant, engine: str, threads: int, p50_ms: float) -> bool:
    """Record the time of a run. False if it cannot be written."""
    timing = {"p50_ms": p50_ms, "engine": engine, "threads": threads}
    return timings.record(key(bundle, variant, threads, KIND), timing)


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
