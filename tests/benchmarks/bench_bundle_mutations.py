"""Mutated bundles through open, inspect, verify, report and a session. Goal: no death, no traceback.

python tests/benchmarks/bench_bundle_mutations.py [--count 12000] [--seed 0]

Each seed is one mutation (bundle_mutations.py). Those of kind ``content`` change what an engine parses,
under hashes that fit again: what ends the process there is listed, and is what ``probe=True`` is for.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.fixtures.bundle_mutations import original, outcomes


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=12_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    began = time.perf_counter()
    ends: Counter[tuple[str, str]] = Counter()
    slowest, faults = 0.0, 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["EDGEKIT_CACHE"] = str(Path(folder) / "cache")
        for outcome in outcomes(original(Path(folder)), range(asked.seed, asked.seed + asked.count)):
            ends[outcome.kind, outcome.end] += 1
            slowest = max(slowest, outcome.seconds)
            if outcome.fault:
                faults += 1
                print(f"seed {outcome.seed}, {outcome.kind}: {outcome.fault}", flush=True)
    for (kind, end), count in sorted(ends.items()):
        print(f"{count:6}  {kind:9} {end}")
    seconds = time.perf_counter() - began
    print(f"{asked.count} mutations, {faults} faults, slowest {slowest:.2f} s, all {seconds:.0f} s")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
