"""One entry of a cell: loads its artifact and runs it when it is asked to, in a process of its own.

    python -m tests.benchmarks.scoreboard.entry_child NETWORK-FOLDER ENGINE ENTRY THREADS RUNNER

RUNNER is a key of RUNNERS of a language model; else "", for EdgeKit's runner of the engine.
Requests are lines on standard input, answers lines of JSON on standard output: ``{"ready": true}`` or
``{"failure": ...}`` at the start; ``score FOLDER`` runs every held-out sample and writes its outputs as
``.npz``; ``burst SECONDS`` times some runs of the first sample, or a language model's prompt of PROMPT tokens
and the WRITTEN that follow. The process is pinned to THREADS processors.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from edgekit.errors import EdgeKitError
from edgekit.target.registry import engine, open_ready
from edgekit.tensor_spec import TensorSpec
from tests.benchmarks.text_runners import RUNNERS, TextRunner, timed

MOST_RUNS = 200
PROMPT, WRITTEN = 512, 128
"""Tokens of a burst of a language model: llama-bench's pp512 and tg128, the latter after the prompt."""


def main() -> None:
    folder, name, entry, threads, text_runner = (
        Path(sys.argv[1]),
        *sys.argv[2:4],
        int(sys.argv[4]),
        sys.argv[5],
    )
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # engines print to standard output
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])
    place = folder / name / entry
    paths = sorted((folder / "heldout").glob("*.npz"))
    try:
        if text_runner:
            runner: Any = Text(RUNNERS[text_runner](place, name, threads))
        else:
            runner = Network(folder, place, name, threads)
        first = load(paths[0])
        runner.run(first)
    except (EdgeKitError, RuntimeError) as problem:
        reason = " ".join(str(problem).replace(f"{place}{os.sep}", "").split())
        print(json.dumps({"failure": reason[-160:]}), file=answers)
        return
    print(json.dumps({"ready": True}), file=answers)
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        if word == "score":
            for path in paths:
                np.savez(Path(rest) / path.name, allow_pickle=False, **runner.run(load(path)))
            print(json.dumps({"peak_mb": peak_mb()}), file=answers)
        else:
            print(json.dumps(runner.burst(first, float(rest))), file=answers)


class Network:
    """An artifact of EdgeKit's runner of an engine."""

    def __init__(self, folder: Path, place: Path, name: str, threads: int) -> None:
        made = json.loads((place / "made.json").read_text("utf-8"))
        specs = json.loads((folder / "specs.json").read_text("utf-8"))
        inputs, outputs = (
            [TensorSpec(n, d, tuple(s)) for n, d, s in specs[side]] for side in ("inputs", "outputs")
        )
        files = {file: place / file for file in made["files"]}
        runner = open_ready(engine(name), files, inputs, outputs, made["options"], threads)
        self.run: Callable[[dict[str, Any]], Any] = runner.run

    def burst(self, sample: dict[str, Any], seconds: float) -> dict[str, float]:
        """Return the medians of some runs: seconds by the clock, and CPU seconds of the process. The first
        run, which finds its caches cold, does not count."""
        self.run(sample)
        wall: list[float] = []
        own: list[float] = []
        end = time.perf_counter() + seconds
        while not wall or (time.perf_counter() < end and len(wall) < MOST_RUNS):
            began, began_own = time.perf_counter(), time.process_time()
            self.run(sample)
            own.append(time.process_time() - began_own)
            wall.append(time.perf_counter() - began)
        return {"wall_s": median(wall), "cpu_s": median(own)}


class Text:
    """A language model."""

    def __init__(self, runner: TextRunner) -> None:
        self._runner = runner
        self._prompt = list(range(1000, 1000 + PROMPT))

    def run(self, sample: dict[str, Any]) -> dict[str, Any]:
        return {"logits": self._runner.logits(sample["tokens"].tolist())}

    def burst(self, sample: dict[str, Any], seconds: float) -> dict[str, float]:
        """Return the times of a prompt and what follows it, as ``timed``."""
        return timed(self._runner, self._prompt, WRITTEN)


def load(path: Path) -> dict[str, Any]:
    with np.load(path) as arrays:
        return dict(arrays)


def peak_mb() -> float | None:
    """Return the largest resident set of this process so far, in 2**20 bytes; None where it is unknown."""
    try:
        status = Path("/proc/self/status").read_text("utf-8")
    except OSError:
        return None
    return round(int(status.partition("VmHWM:")[2].split()[0]) / 1024, 1)


if __name__ == "__main__":
    main()
