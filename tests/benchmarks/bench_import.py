"""What importing edgekit.runtime costs over numpy, in fresh processes. Goal: 50 ms.

python tests/benchmarks/bench_import.py
"""

from __future__ import annotations

import subprocess
import sys

from tests.benchmarks.interleaved import interleaved

GOAL_S = 0.050


def main() -> None:
    def process(script: str) -> None:
        subprocess.run([sys.executable, "-c", script], check=True)

    timings = interleaved(
        {
            "python": lambda: process("pass"),
            "numpy": lambda: process("import numpy"),
            "edgekit.runtime": lambda: process("import numpy, edgekit.runtime"),
        },
        seconds=10,
    )
    for name, timing in timings.items():
        print(f"{name:16} {timing.min_s * 1e3:6.1f} ms")
    added = timings["edgekit.runtime"].min_s - timings["numpy"].min_s
    verdict = "within" if added <= GOAL_S else "OVER"
    print(f"over numpy       {added * 1e3:6.1f} ms, {verdict} the goal of {GOAL_S * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
