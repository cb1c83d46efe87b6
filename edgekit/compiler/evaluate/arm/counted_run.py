"""Runs artifacts on this machine's engine, each once between two marks.

The first run is counted: of visual wake words in int8 on Cortex-A76 it has 1,959,821 instructions, the second
one 1,955,329, and a network that takes longer differs by less.

Run by Python for aarch64 under qemu; needs what a device has. The marks are calls of the system that do
nothing, which the plugin tests/arm/block_counts.c takes as begin and end. Reads folders, one a line, and
answers each by a line of JSON: where the libraries are loaded, path -> address.

    python3.11 -m edgekit.compiler.evaluate.arm.counted_run < FOLDERS

A folder has job.json (``target``, ``files``, ``inputs``, ``outputs``, ``options``), sample.npz and the files.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import closing, suppress
from pathlib import Path

import numpy as np

from edgekit.target.registry import engine, open_ready
from edgekit.tensor_spec import specs_of

assert sys.platform == "linux"  # emulated by qemu
MARK = 0x45444745
"""As in block_counts.c."""


def main() -> None:
    for line in sys.stdin:
        _run(Path(line.rstrip("\n")))
        print(json.dumps(_loaded()), flush=True)


def _run(folder: Path) -> None:
    job = json.loads((folder / "job.json").read_text("utf-8"))
    files = {name: folder / "files" / name for name in job["files"]}
    inputs, outputs = specs_of(job["inputs"]), specs_of(job["outputs"])
    with np.load(folder / "sample.npz") as arrays:
        sample = {spec.name: arrays[str(index)] for index, spec in enumerate(inputs)}
    with closing(open_ready(engine(job["target"]), files, inputs, outputs, job["options"], 1)) as runner:
        _mark()
        runner.run(sample)
        _mark()


def _mark() -> None:
    with suppress(ProcessLookupError):  # no process has this number
        os.getpriority(os.PRIO_PROCESS, MARK)


def _loaded() -> dict[str, int]:
    """Return path -> lowest address of each mapped file."""
    address_by_path: dict[str, int] = {}
    for line in Path("/proc/self/maps").read_text("utf-8").splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith("/"):
            address_by_path.setdefault(fields[5], int(fields[0].partition("-")[0], 16))
    return address_by_path


if __name__ == "__main__":
    main()
