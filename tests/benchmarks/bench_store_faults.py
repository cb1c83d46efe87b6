"""A store killed or failed at each system call of install, activate, commit, rollback. Goal: nothing lost.

python tests/benchmarks/bench_store_faults.py [--effect EFFECT]... [--operation NAME]...

EFFECT is strace's: ``signal=KILL``, ``error=ENOSPC``, ``error=EIO``; all three, without. After each run the
committed bundle is there, what starts next is whole, and another bundle can be installed and started.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.runtime.store.store_faults import CALLS, FAILING, OPERATIONS, at_every_call, counted


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--effect", action="append", default=[])
    parser.add_argument("--operation", action="append", default=[], choices=OPERATIONS)
    asked = parser.parse_args()
    for effect in asked.effect or ("signal=KILL", "error=ENOSPC", "error=EIO"):
        for operation in asked.operation or OPERATIONS:
            began = time.perf_counter()
            calls = CALLS if effect == "signal=KILL" else FAILING
            with tempfile.TemporaryDirectory() as place:
                ends = counted(at_every_call(Path(place), operation, effect, calls))
            print(f"{effect} {operation}: {ends}, {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
