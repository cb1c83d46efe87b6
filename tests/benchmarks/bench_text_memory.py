"""Memory of a larger text model: its build, of all processes together, and a session that writes with it.

    python -m tests.benchmarks.bench_text_memory 0.5b ort:int8 ort:int4 openvino:int8 tflite:int8

The model has the form of Qwen2.5-0.5B (or 1.5b, -1.5B) with random weights, or is a file: MODEL.gguf. Shown
is the most at one time, looked at every 10 ms. ``own`` is what the system can't drop: the heap, without pages
of files. ``mapped`` is pages of files in memory, which it can drop and read again. The goal for a build is
1 GB and the largest layer as float32.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from edgekit.compiler.model.language.open_model import open_language_model
from tests.fixtures.large_gguf import FORMS, write_large

MB, POLL_S = 1e6, 0.01
BUILD = "from edgekit.cli.verbs import main; main()"
WRITES = """
import sys
from edgekit.runtime.generate import TextSession
with TextSession(sys.argv[1], context=512) as session:
    stream = session.generate("Once upon a time there was a small", max_tokens=16)
    for _ in stream: pass
    print(stream.result.tokens)
"""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Peak(NamedTuple):
    """Most memory at one time, in bytes, and the CPU time that it took.

    Attributes:
        own: What all processes hold and the system can't drop.
        whole: The same, and pages of files.
        seconds: CPU time of all processes.
    """

    own: int
    whole: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.own / MB:8,.0f} own {self.whole / MB:8,.0f} with mapped {self.seconds:7.0f} s CPU"


def peak_of(command: list[str], environment: dict[str, str]) -> Peak:
    """Run a command to its end. Raises CalledProcessError: it failed."""
    own = whole = 0
    before = os.times()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        pairs = [_memory(pid) for pid in _family(process.pid)]
        own = max(own, sum(resident - files for resident, files in pairs))
        whole = max(whole, sum(resident for resident, _ in pairs))
        time.sleep(POLL_S)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    after = os.times()
    return Peak(
        own,
        whole,
        after.children_user + after.children_system - before.children_user - before.children_system,
    )


def _family(root: int) -> list[int]:
    """Return a process and all that it, or one of these, started."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError):
            parents[int(name)] = int(Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[1])
    family = [root]
    for pid in family:
        family += [child for child, parent in parents.items() if parent == pid]
    return family


def _memory(pid: int) -> tuple[int, int]:
    with contextlib.suppress(OSError, ValueError, IndexError):
        resident, files = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
        return int(resident) * PAGE_BYTES, int(files) * PAGE_BYTES
    return 0, 0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("variants", nargs="+", metavar="TARGET:PRECISION")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        form = FORMS.get(arguments.model)
        path = write_large(folder / "large.gguf", form) if form else Path(arguments.model)
        shapes = open_language_model(path).config.weight_shapes().values()
        goal = 1e9 + 4 * max(map(math.prod, shapes))
        print(
            f"{path.stat().st_size / MB:,.0f} MB file, {sum(map(math.prod, shapes)) / MB:,.0f} M parameters; "
            f"goal of a build: {goal / MB:,.0f} MB"
        )
        environment = {**os.environ, "EDGEKIT_CACHE": str(folder / "cache"), "OPENBLAS_NUM_THREADS": "1"}
        for variant in arguments.variants:
            target, _, precision = variant.partition(":")
            bundle = folder / f"{target}-{precision}.edgekit"
            options = ["-t", target, "--precision", precision, "--force", "-o", str(bundle)]
            built = peak_of([sys.executable, "-c", BUILD, "build", str(path), *options], environment)
            within = "within the goal" if built.own <= goal else "OVER the goal"
            print(
                f"{variant:16} build {built}   {within}; bundle {bundle.stat().st_size / MB:,.0f} MB",
                flush=True,
            )
            peak_of([sys.executable, "-c", WRITES, str(bundle)], environment)  # unpacks
            print(
                f"{variant:16} runs  {peak_of([sys.executable, '-c', WRITES, str(bundle)], environment)}",
                flush=True,
            )
            bundle.unlink()


if __name__ == "__main__":
    main()
