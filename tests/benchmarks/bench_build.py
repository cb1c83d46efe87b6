"""Time and memory of a build for three engines, verified, process start included. Goals: 10 s and 700 MB.

python tests/benchmarks/bench_build.py MODEL.onnx [--precision auto] [further options of edgekit build]
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GOAL_S, GOAL_MB = 10.0, 700
START = "from edgekit.cli import main; main()"


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    targets = [argument for name in ("ort", "openvino", "tflite") for argument in ("-t", name)]
    digests = []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.edgekit"
        command = [sys.executable, "-c", START, "build", *sys.argv[1:], *targets, "-o", str(out)]
        environment = {**os.environ, "EDGEKIT_CACHE": str(Path(folder) / "cache")}
        for attempt in ("first", "second"):
            started = time.perf_counter()
            process = subprocess.Popen(command, env=environment)
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - started
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode != 0:
                sys.exit(process.returncode)
            peak_mb = usage.ru_maxrss / 1024  # Linux counts in KB
            fits = seconds <= GOAL_S and peak_mb <= GOAL_MB
            print(
                f"{attempt} build: {seconds:.1f} s wall, {usage.ru_utime + usage.ru_stime:.1f} s CPU, "
                f"{peak_mb:.0f} MB peak, {out.stat().st_size / 1e6:.1f} MB bundle; "
                f"{'within' if fits else 'OVER'} the goal of {GOAL_S:.0f} s and {GOAL_MB} MB"
            )
            digests.append(hashlib.sha256(out.read_bytes()).hexdigest())
    print(f"same bytes: {digests[0] == digests[1]} (the second build remembers the timings of the first)")


if __name__ == "__main__":
    main()
