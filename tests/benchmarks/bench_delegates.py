"""Cost of a worker process for a TFLite delegate: a run, and a start.

    python -m tests.benchmarks.bench_delegates [--rounds 40]

The delegate of the tests takes one ADD; XNNPACK runs the others in both forms, so they differ by the process
alone. Rounds take turns, one thread. Of a run: the least wall time of all, and the least CPU time of the app
and the worker together. A start is the time until the delegate answers, and the CPU time of its processes;
the first one of a machine has the probe in addition. Sizes are those of all inputs and outputs of a run.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

import edgekit
from edgekit.bundle.bundle import Bundle
from edgekit.runtime import Session
from tests.conftest import SHARED
from tests.fixtures.delegates import compile_delegate, settled

MODELS = ("resnet8_cifar10_fp32.onnx", "yolox_nano.onnx")
PREFIXES = ("delegate-in-process", "delegate")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["EDGEKIT_CACHE"] = str(folder / "cache")  # no verdict of an earlier run
        if not compile_delegate(folder / "delegate.so"):
            raise SystemExit("no compiler")
        print("| model | arrays | in process | worker | first start | later start |")
        print("|---|---|---|---|---|---|")
        for model in MODELS:
            path = folder / f"{model}.edgekit"
            edgekit.build(SHARED / "models" / model, targets=["tflite"]).save(path)
            print(f"| {model} | {_row(Bundle.open(path), folder / 'delegate.so', rounds)} |", flush=True)


def _row(bundle: Bundle, library: Path, rounds: int) -> str:
    feeds, outputs = bundle.golden[0]
    size_mb = sum(array.nbytes for array in (*feeds.values(), *outputs.values())) / 1e6
    starts = [_start(bundle, library) for _ in range(4)]
    sessions = [_opened(bundle, f"{prefix}:{library},limit=1,only=0") for prefix in PREFIXES]
    best = [(float("inf"), float("inf")) for _ in sessions]
    for _ in range(rounds):
        for index, session in enumerate(sessions):
            for _ in range(5):
                took, least = _run_ms(session, feeds), best[index]
                best[index] = (min(took[0], least[0]), min(took[1], least[1]))
    for session in sessions:
        session.close()
    shown = [f"{wall_ms:.3f} ms, CPU {cpu_ms:.3f}" for wall_ms, cpu_ms in best]
    shown += [f"{wall_s:.2f} s, CPU {cpu_s:.2f}" for wall_s, cpu_s in (starts[0], min(starts[1:]))]
    return " | ".join([f"{size_mb:.3g} MB", *shown])


def _run_ms(session: Session, feeds: dict[str, np.ndarray]) -> tuple[float, float]:
    worker_ms, wall_s, cpu_s = _worker_ms(session), time.perf_counter(), time.process_time()
    session.run(feeds)
    cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
    return 1000 * wall_s, 1000 * cpu_s + _worker_ms(session) - worker_ms


def _worker_ms(session: Session) -> float:
    """Return the CPU time of the worker's threads, as the kernel counts it."""
    tasks = Path(f"/proc/{session.runner.facts().get('worker_pid', 0)}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e6


def _opened(bundle: Bundle, device: str) -> Session:
    return settled(Session(bundle, device=device, threads=1, measure=False))


def _start(bundle: Bundle, library: Path) -> tuple[float, float]:
    began_s = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _opened(bundle, f"delegate:{library},limit=1,only=0").close()
    took_s, after = time.perf_counter() - began_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
