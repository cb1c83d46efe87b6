"""Ctrl-C at random moments of requests, over and over. Goal: no wrong answer, no deadlock.

    python tests/benchmarks/bench_interrupts.py [--count 100000] [--seed S] [--mode MODE]...

Each mode runs in a process of its own. One that goes on no more for a minute prints every thread's stack.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.runtime.interrupted import MODES, in_child


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100_000, help="interrupts in each mode")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mode", action="append", choices=list(MODES), default=[])
    asked = parser.parse_args()
    for mode in asked.mode or MODES:
        began = time.perf_counter()
        outcomes = in_child(mode, asked.count, asked.seed)
        wrong = outcomes["wrong"] + outcomes["wrong in peace"]
        print(
            f"{mode:17} {outcomes['interrupts']} interrupts, {outcomes['right']} right, {wrong} wrong, "
            f"{dict(outcomes)}, {time.perf_counter() - began:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
