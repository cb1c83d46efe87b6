"""Memory over many inferences through a Session with metrics on. Goal: less than 1 MB more every 10,000 runs.

    python tests/benchmarks/bench_soak.py BUNDLE.edgekit [--engine ort] [--runs 200000] [--settle 20000]

Each engine has a fresh process. Resident memory is read a hundred times after ``--settle`` runs, in which
engines and allocators come to rest; the slope is that of the straight line through these points. Inputs are
new arrays at each run, answers are dropped, as in an app.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from edgekit.bundle import Bundle
from edgekit.runtime import Session
from edgekit.runtime.metrics.metrics import Metrics

GOAL_MB = 1.0
"""Every 10,000 runs."""
POINTS = 100


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("bundle", type=Path)
    arguments.add_argument("--engine", action="append")
    arguments.add_argument("--runs", type=int, default=200_000)
    arguments.add_argument("--settle", type=int, default=20_000)
    arguments.add_argument("--here", action="store_true", help="in this process; for the script itself")
    given = arguments.parse_args()
    if given.here:
        soak(given.bundle, given.engine[0], given.runs, given.settle)
        return
    with Bundle.open(given.bundle) as bundle:
        engines = given.engine or sorted({v.target for v in bundle.variants if v.usable})
    for engine in engines:
        counts = ["--runs", str(given.runs), "--settle", str(given.settle)]
        command = [sys.executable, __file__, str(given.bundle), "--engine", engine, *counts, "--here"]
        subprocess.run(command, check=True)


def soak(path: Path, engine: str, runs: int, settle: int) -> None:
    random = np.random.default_rng(0)
    with Session(path, engine=engine, strict=True, threads=1) as session:
        metrics = Metrics(session)
        every = max(1, (runs - settle) // POINTS)
        counts: list[int] = []
        held_mb: list[float] = []
        began, began_cpu = time.monotonic(), time.process_time()
        for number in range(runs):
            if number >= settle and (number - settle) % every == 0:
                counts.append(number)
                held_mb.append(resident_mb())
            metrics.run(
                {s.name: random.standard_normal(s.shape, np.float32).astype(s.dtype) for s in session.inputs}
            )
        slope_mb = 10_000 * float(np.polyfit(np.array(counts), np.array(held_mb), 1)[0])
        counted = metrics.snapshot()["outcomes"]
        verdict = "within" if slope_mb < GOAL_MB else "OVER"
        print(
            f"{session.active.engine:24} {runs} runs, {time.monotonic() - began:.0f} s "
            f"({time.process_time() - began_cpu:.0f} s CPU): "
            f"{held_mb[0]:.1f} MB after {settle}, {resident_mb():.1f} MB at the end, "
            f"{slope_mb:+.3f} MB every 10,000, {verdict} the goal of {GOAL_MB} "
            f"{counted}",
            flush=True,
        )


def resident_mb() -> float:
    """Resident memory of this process, as Linux tells it: in pages, where guard/memory.py has whole MB."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    main()
