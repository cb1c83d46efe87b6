"""What it costs to build in a child process: the same build contained and with ``--trusted``, in turns.

    python tests/benchmarks/bench_containment.py MODEL [--rounds 7]

Each build is a process of the command line, as a user starts it. Prints the least and the median time of both
kinds, the median of the differences within a round, and whether the bundles are the same bytes. At most 0.5 s
more is wanted for YOLOX-nano; ends with 1 if it is more, or the bytes differ.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT_S = 0.5
TARGETS = ("ort", "openvino", "tflite")


def built(model: Path, folder: Path, trusted: bool, cache: str = "") -> tuple[float, str]:
    """Seconds of a build, and the sha256 of its bundle. Without a cache it measures everything itself."""
    bundle = folder / "made.edgekit"
    command = [sys.executable, "-c", "from edgekit.cli import main; main()", "build", str(model)]
    command += ["-o", str(bundle), *(word for target in TARGETS for word in ("-t", target))]
    command += ["--trusted"] if trusted else []
    environment = {**os.environ, "EDGEKIT_CACHE": cache or tempfile.mkdtemp(dir=folder)}
    environment.pop("EDGEKIT_TRUSTED", None)
    started = time.perf_counter()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds = time.perf_counter() - started
    digest = hashlib.sha256(bundle.read_bytes()).hexdigest()
    bundle.unlink()
    return seconds, digest


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    model = given.model.absolute()
    seconds: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as name:
        for index in range(given.rounds):
            for trusted in (False, True) if index % 2 else (True, False):
                seconds[trusted].append(built(model, Path(name), trusted)[0])
        cache = tempfile.mkdtemp(dir=name)  # a bundle holds timings: those of the first
        digests = [built(model, Path(name), trusted, cache)[1] for trusted in (True, True, False)]
    for trusted, label in ((False, "contained"), (True, "--trusted")):
        figures = seconds[trusted]
        print(f"{label}: least {min(figures):.2f} s, median {statistics.median(figures):.2f} s")
    more = statistics.median([a - b for a, b in zip(seconds[False], seconds[True], strict=True)])
    least = min(seconds[False]) - min(seconds[True])
    print(f"{model.name}: {more:+.2f} s (median of pairs), {least:+.2f} s (of the least)")
    same = digests[1] == digests[2]
    print("the same bytes" if same else "other bytes", "with one cache of timings")
    return 0 if least <= LIMIT_S and same else 1


if __name__ == "__main__":
    sys.exit(main())
