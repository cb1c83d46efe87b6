"""Cost of GPU support for a session that the CPU answers.

    tests/vulkan/setup
    python -m tests.benchmarks.bench_accelerator_overhead [--models vww_96_float.onnx ...]

Processes take turns, each with one session on one thread:

    without   onnxruntime-ep-webgpu can't be imported, and there is no GPU
    with      it is installed, and lavapipe is the machine's GPU; the session is ``device="cpu"``
    refused   the same with ``device="gpu"``; the GPU is refused, and the CPU answers

Printed are the CPU time of a run, its ratio to ``without`` (median of rounds, each with every process), and
the CPU time from the start of the process to the first answer (least of the starts).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import edgekit
from tests.conftest import SHARED
from tests.vulkan import lavapipe

CHILD = """
import os, sys, time
path, device, blocked = sys.argv[1:]
if blocked == "1":
    sys.modules["onnxruntime_ep_webgpu"] = None  # its import raises ModuleNotFoundError
from edgekit.runtime import Session
session = Session(path, engine="ort", threads=1, device=device)
feeds = {spec.name: spec.zeros() for spec in session.inputs}
session.run(feeds)
print(time.process_time(), flush=True)
if device == "gpu":
    states = None
    while states != session.preparing or "warming" in session.preparing.values():
        states = dict(session.preparing)
        session.run(feeds)
        time.sleep(0.05)
    assert session.active.device == "CPU" and session.fallbacks, session.active
assert ("onnxruntime_ep_webgpu" in sys.modules) == (device == "gpu" or blocked == "1")
for line in sys.stdin:
    runs = int(line)
    began = time.process_time()
    for _ in range(runs):
        session.run(feeds)
    print((time.process_time() - began) / runs, flush=True)
"""
KINDS = {"without": ("cpu", "1"), "with": ("cpu", "0"), "refused": ("gpu", "0")}


def started(kind: str, bundle: Path) -> subprocess.Popen[str]:
    """Start the process of a kind."""
    settings = dict(os.environ)
    if kind != "without":
        settings |= lavapipe.environment()
    command = [sys.executable, "-c", CHILD, str(bundle), *KINDS[kind]]
    return subprocess.Popen(
        command,
        env=settings,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def line_of(process: subprocess.Popen[str]) -> float:
    """Return the next number that a process prints."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the process ended"
    return float(line)


def asked(process: subprocess.Popen[str], runs: int) -> float:
    """Return the CPU time of a run in seconds, measured over so many."""
    assert process.stdin is not None
    process.stdin.write(f"{runs}\n")
    process.stdin.flush()
    return line_of(process)


def measure(bundle: Path, rounds: int, starts: int) -> dict[str, dict[str, float]]:
    """Return for each kind ``us``, ``ratio`` and ``first_ms``."""
    first: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(starts):
        for kind in ("without", "with"):
            process = started(kind, bundle)
            first[kind].append(line_of(process))
            process.communicate()
    processes = {kind: started(kind, bundle) for kind in KINDS}
    try:
        for kind, process in processes.items():
            first[kind].append(line_of(process))
        runs = max(1, round(0.03 / min(asked(process, 5) for process in processes.values())))
        taken: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for _ in range(rounds):
            for kind in random.sample(list(KINDS), len(KINDS)):
                taken[kind].append(asked(processes[kind], runs))
    finally:
        for process in processes.values():
            process.communicate()
    return {
        kind: {
            "us": round(1e6 * min(times), 2),
            "ratio": round(
                statistics.median(own / bare for own, bare in zip(times, taken["without"], strict=True)), 4
            ),
            "first_ms": round(1000 * min(first[kind]), 1),
        }
        for kind, times in taken.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--models", nargs="*", default=["silero_vad_16k_sequence.onnx"])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--starts", type=int, default=10)
    given = parser.parse_args()
    for name in given.models:
        with tempfile.TemporaryDirectory() as folder:
            bundle = Path(folder, "model.edgekit")
            shapes = {"input": (4, 576)} if name.startswith("silero") else None
            edgekit.build(SHARED / "models" / name, targets=["ort"], shapes=shapes).save(bundle)
            for kind, row in measure(bundle, given.rounds, given.starts).items():
                print(name, kind, json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
