"""What importing edgekit.runtime costs over numpy, in fresh processes, from bytecode as pip installs it.

Goal: 50 ms.

python tests/benchmarks/bench_import.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from tests.benchmarks.interleaved import interleaved

GOAL_S = 0.050


def main() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def process(script: str) -> None:
        subprocess.run([sys.executable, "-c", script], env=environment, check=True)

    with tempfile.TemporaryDirectory() as folder:
        environment["PYTHONPYCACHEPREFIX"] = folder
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
