"""Runs of a benchmark history."""

from __future__ import annotations

from collections.abc import Mapping

from edgekit.compiler.bench.history import Run


def run(day: int, medians_ms: Mapping[str, float], *, cpu: str = "A CPU", threads: int = 2) -> Run:
    """A run on a day of November 2026 with the median of each variant."""
    results = [
        {
            "variant": name,
            "threads": threads,
            "p50_ms": p50_ms,
            "p95_ms": 1.2 * p50_ms,
            "p99_ms": 1.4 * p50_ms,
            "load_ms": 30.0,
            "first_ms": 4.0,
        }
        for name, p50_ms in medians_ms.items()
    ]
    time = f"2026-11-{day}T20:10:00Z"
    return Run(time, "0.1.0", "m.edgekit", f"{day:064x}", cpu, ("avx2",), "x86_64", tuple(results))
