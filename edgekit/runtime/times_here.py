"""How long the variants of a bundle take on this machine, as sessions measured it."""

from __future__ import annotations

import time
from collections.abc import Mapping

from edgekit import measured
from edgekit.bundle import Bundle, Variant
from edgekit.target import Array, Runner

COMPARED_RUNS = 3
"""Runs of each of two runners that are compared between two requests: an app waits for them once."""


def recalled(bundle: Bundle, threads: int) -> dict[str, tuple[float, str]]:
    """What sessions of this machine measured: variant -> (ms, engine that did it)."""
    usable = [variant for variant in bundle.variants if variant.usable]
    if len(usable) < 2 or not measured.timings_folder().is_dir():
        return {}
    found = {}
    for variant in usable:
        timing = measured.recall(_key(bundle, variant, threads)) or {}
        time_ms = measured.milliseconds_of(timing)
        if time_ms is not None:
            found[variant.name] = (time_ms, str(timing.get("engine")))
    return found


def remember(bundle: Bundle, variant: Variant, engine: str, threads: int, p50_ms: float) -> bool:
    """Record how long a run takes. False where it cannot be written."""
    timing = {"p50_ms": p50_ms, "engine": engine, "threads": threads}
    return measured.record(_key(bundle, variant, threads), timing)


def compare(runners: tuple[Runner, Runner], feeds: Mapping[str, Array]) -> tuple[float, float]:
    """The fastest of some runs of each, in ms, in turns: what slows the machine down slows both."""
    best = [float("inf"), float("inf")]
    for _ in range(COMPARED_RUNS):
        for place, runner in enumerate(runners):
            began = time.perf_counter()
            runner.run(feeds)
            best[place] = min(best[place], 1000 * (time.perf_counter() - began))
    return best[0], best[1]


def _key(bundle: Bundle, variant: Variant, threads: int) -> str:
    # The engine's version stands in the timing, not in its name: to know it the engine must be imported,
    # and only the one that will run should be. A timing of another version is dropped when that is known.
    digest = measured.digest_of({f: bundle.sha256(entry) for f, entry in variant.files.items()})
    return measured.timing_key(digest, "", threads, kind="session")
