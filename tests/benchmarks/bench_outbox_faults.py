"""An outbox killed or failed at every system call on its files, and killed at random. Goal: nothing lost.

python tests/benchmarks/bench_outbox_faults.py [--kills N] [--seed S] [--effect EFFECT]... [--call NAME]...

EFFECT is strace's: ``signal=KILL``, ``error=ENOSPC``, ``error=EIO``. Without strace only ``--kills`` works.
Every run is checked: each row that was acknowledged is delivered or waits, and none came under two keys.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.runtime.outbox.outbox_faults import CALLS, at_every_call, at_random


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--effect", action="append", default=[])
    parser.add_argument("--call", action="append", default=[])
    asked = parser.parse_args()
    for effect in asked.effect:
        for call in asked.call or CALLS:
            began = time.perf_counter()
            with tempfile.TemporaryDirectory() as place:
                ended = dict(at_every_call(Path(place), effect, [call]))
            print(f"{effect} {call}: {ended}, {time.perf_counter() - began:.0f} s", flush=True)
    if asked.kills:
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as place:
            trial = at_random(Path(place), asked.kills, asked.seed)
        rows, seconds = len(trial.acknowledged), time.perf_counter() - began
        print(f"{asked.kills} random kills: {rows} acknowledged rows, none lost, {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
