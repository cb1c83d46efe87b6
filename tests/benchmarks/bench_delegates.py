"""Cost of a worker process for a TFLite delegate: a run, and a start.

    python -m tests.benchmarks.bench_delegates [--rounds 15]

The delegate of the tests takes one ADD; XNNPACK runs the others in both forms, so they differ by the process
alone. Rounds take turns, one thread: the fastest run of all, wall time. Sizes are those of all inputs and
outputs of a run. A start is the time until the delegate answers, and the CPU time
of its processes; the first one of a machine has the probe in addition.
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
FORMS = {"in process": "delegate-in-process", "worker": "delegate"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["EDGEKIT_CACHE"] = str(folder / "cache")  # no verdict of an earlier run
        if not compile_delegate(folder / "delegate.so"):
            raise SystemExit("no compiler")
        print("| model | arrays | in process | worker | added | first start | later start | CPU of each |")
        print("|---|---|---|---|---|---|---|---|")
        for model in MODELS:
            path = folder / f"{model}.edgekit"
            edgekit.build(SHARED / "models" / model, targets=["tflite"]).save(path)
            print(f"| {model} | {_row(Bundle.open(path), folder / 'delegate.so', rounds)} |", flush=True)


def _row(bundle: Bundle, library: Path, rounds: int) -> str:
    feeds, outputs = bundle.golden[0]
    size_bytes = sum(array.nbytes for array in (*feeds.values(), *outputs.values()))
    starts = [_start(bundle, library) for _ in range(4)]
    sessions = {form: _opened(bundle, f"{prefix}:{library},limit=1,only=0") for form, prefix in FORMS.items()}
    best = dict.fromkeys(sessions, float("inf"))
    count = max(5, int(0.1 / _fastest_s(sessions["worker"], feeds, 5)))
    for _ in range(rounds):
        for form, session in sessions.items():
            best[form] = min(best[form], 1000 * _fastest_s(session, feeds, count))
    for session in sessions.values():
        session.close()
    added_us = 1000 * (best["worker"] - best["in process"])
    (first_s, first_cpu_s), later = starts[0], min(starts[1:])
    return (
        f"{size_bytes / 1e6:.3g} MB | {best['in process']:.3f} ms | {best['worker']:.3f} ms | "
        f"{added_us:+.0f} us | {first_s:.2f} s | {later[0]:.2f} s | {first_cpu_s:.2f}, {later[1]:.2f} s"
    )


def _fastest_s(session: Session, feeds: dict[str, np.ndarray], count: int) -> float:
    fastest_s = float("inf")
    for _ in range(count):
        began_s = time.perf_counter()
        session.run(feeds)
        fastest_s = min(fastest_s, time.perf_counter() - began_s)
    return fastest_s


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
