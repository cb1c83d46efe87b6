"""Random histories of a store, power lost after each call: every state of the disk is checked. Goal: 0 bad.

python tests/benchmarks/bench_store_crashes.py [--states N] [--seed S]

tests/runtime/store/crash_model.py says what may be on the disk. The stores are real and on the real disk.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.runtime.store.crash_histories import History, drawn
from tests.runtime.store.crash_model import explored


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--states", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    draw, began = random.Random(asked.seed), time.perf_counter()
    states = histories = bad = calls = 0
    while states < asked.states:
        with tempfile.TemporaryDirectory() as place:
            history = History(Path(place), drawn(draw, 16), draw.choice([None, "reader"]))
        count, wrong = explored(history.operations, history.states, history.bundles, draw)
        states, bad, histories = states + count, bad + len(wrong), histories + 1
        calls += len(history.operations)
        for why in wrong[:3]:
            print(why, flush=True)
    seconds = time.perf_counter() - began
    print(f"{histories} histories, {calls} calls, {states} states of the disk, {bad} bad, {seconds:.0f} s")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
