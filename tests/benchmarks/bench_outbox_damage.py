"""An outbox with flipped bits, and one whose every use is interrupted. Goal: nothing lost that could be read.

python tests/benchmarks/bench_outbox_damage.py [--flips N] [--interrupts N] [--seed S] [--place FOLDER]

Each flip is of one bit of the file or of its log at rest. Each interrupt is a signal at a random moment of a
call, 2,000 on one folder. PLACE may be a memory disk, which takes fewer minutes. What is wrong ends it with a
message.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.runtime.outbox.outbox_flips import after_a_flip, at_rest
from tests.runtime.outbox.outbox_interrupts import interrupted

AT_ONCE = 2000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--flips", type=int, default=0)
    parser.add_argument("--interrupts", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--place", type=Path)
    asked = parser.parse_args()
    began = time.perf_counter()
    if asked.flips:
        with tempfile.TemporaryDirectory(dir=asked.place) as place:
            made = at_rest(Path(place))
            seen = Counter[str]()
            for seed in range(asked.seed, asked.seed + asked.flips):
                seen += after_a_flip(made, Path(place), seed)
        print(f"{asked.flips} flips: {dict(seen)}, {time.perf_counter() - began:.0f} s", flush=True)
    began, hit = time.perf_counter(), Counter[str]()
    for start in range(0, asked.interrupts, AT_ONCE):
        with tempfile.TemporaryDirectory(dir=asked.place) as place:
            hit += interrupted(Path(place), min(AT_ONCE, asked.interrupts - start), asked.seed + start)
    if asked.interrupts:
        print(f"{asked.interrupts} interrupts: {dict(hit)}, {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
