"""How long the variants of a bundle take on this machine, as sessions measured it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.variant import Variant
from edgekit.system import timings
from edgekit.target.contract import Runner
from edgekit.tensors import Array

KIND = "session"
"""What an app sees; builds time the bare engine."""
COMPARED_RUNS = 3
"""Runs of each of two runners that are compared between two requests: an app waits for them once."""


def recalled(bundle: Bundle, threads: int) -> dict[str, tuple[float, str]]:
    """What sessions of this machine measured: variant -> (ms, engine that did it)."""
    usable = [variant for variant in bundle.variants if variant.usable]
    if len(usable) < 2 or not timings.timings_folder().is_dir():
        return {}
    found = {}
    for variant in usable:
        timing = timings.recall(key(bundle, variant, threads, KIND)) or {}
        time_ms = timings.milliseconds_of(timing)
        if time_ms is not None:
            found[variant.name] = (time_ms, str(timing.get("engine")))
    return found


def remember(bundle: Bundle, variant: Variant, engine: str, threads: int, p50_ms: float) -> bool:
    """Record how long a run takes. False where it cannot be written."""
    timing = {"p50_ms": p50_ms, "engine": engine, "threads": threads}
    return timings.record(key(bundle, variant, threads, KIND), timing)


def compare(runners: tuple[Runner, Runner], feeds: Mapping[str, Array]) -> tuple[float, float]:
    """The fastest of some runs of each, in ms, in turns: what slows the machine down slows both."""
    best = [float("inf"), float("inf")]
    for _ in range(COMPARED_RUNS):
        for place, runner in enumerate(runners):
            began = time.perf_counter()
            runner.run(feeds)
            best[place] = min(best[place], 1000 * (time.perf_counter() - began))
    return best[0], best[1]


def key(bundle: Bundle, variant: Variant, threads: int, kind: str, engine: str = "") -> str:
    """Name of what was measured of a variant on this machine.

    Args:
        bundle: Has the variant.
        variant: Its files count, not its name.
        threads: Of one run.
        kind: What was measured, and by whom.
        engine: Its name and version. Empty where the record itself has it: to know it the engine must be
            imported, and only the one that will run should be.
    """
    return timings.timing_key(artifact(bundle, variant), engine, threads, kind)


def artifact(bundle: Bundle, variant: Variant) -> str:
    """What a variant is: the hash of its files, as the bundle declares them."""
    return timings.digest_of({file: bundle.sha256(entry) for file, entry in variant.files.items()})


def median(values: Sequence[float]) -> float:
    """The middle one of at least one value."""
    ordered = sorted(values)  # the module statistics costs 4 ms to import
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
