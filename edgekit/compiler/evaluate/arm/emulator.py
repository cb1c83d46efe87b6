"""Runs an artifact on the engine for aarch64 under qemu, and counts the instructions of one run.

``tests/arm/setup`` puts what this needs into the folder EDGEKIT_ARM: Python and the engines for aarch64, a
qemu that takes plugins, and the plugin that counts (``tests/arm/block_counts.c``).
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from select import select
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from edgekit.compiler.evaluate.arm.processors import Processor
from edgekit.compiler.evaluate.samples import Sample
from edgekit.compiler.evaluate.verify import write_files
from edgekit.errors import EngineError
from edgekit.target.contract import Artifact
from edgekit.target.registry import target_package
from edgekit.tensor_spec import TensorSpec

WITHOUT = ("proc",)
"""Folders of the file system for aarch64 that each run has of its own."""


@dataclass(frozen=True)
class BasicBlock:
    """Basic block that was executed.

    Attributes:
        library: The file that contains it; "" if there is none.
        address: Address in that file's address space.
        runs: Number of executions.
        words: Its instructions.
    """

    library: str
    address: int
    runs: int
    words: tuple[int, ...]


class EmulatedEngine:
    """Python for aarch64 with a target's engine, kept running: its start takes seconds. Close it after use.

    Args:
        folder: The emulator's folder.
        processor: The processor to emulate.
        target: Name of the target whose artifacts run.
        inputs: The source model's inputs.
        outputs: The source model's outputs.
        sample: The arrays that are run, by input.
    """

    def __init__(
        self,
        folder: Path,
        processor: Processor,
        target: str,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        sample: Sample,
    ) -> None:
        self._folder, self._processor, self._target = folder, processor, target
        self._inputs, self._outputs, self._sample = inputs, outputs, sample
        self._stack = ExitStack()
        self._home: Path | None = None
        self._read_bytes = self._jobs = 0

    def close(self) -> None:
        self._stack.close()
        self._home = None

    def count_blocks(self, artifact: Artifact, timeout_seconds: float) -> list[BasicBlock]:
        """Return the code that an artifact's first run executes, on one thread.

        Raises:
            EngineError: the artifact did not run, or not in time.
        """
        end = time.monotonic() + timeout_seconds
        home = self._home or self._start()
        self._jobs += 1
        job = home / str(self._jobs)
        write_files(artifact, job / "files")
        facts = {
            "target": self._target,
            "files": list(artifact.files),
            "inputs": self._inputs,
            "outputs": self._outputs,
            "options": dict(artifact.options),
        }
        (job / "job.json").write_text(json.dumps(facts), "utf-8")
        arrays: dict[str, Any] = {str(i): self._sample[spec.name] for i, spec in enumerate(self._inputs)}
        np.savez(job / "sample.npz", **arrays)
        loaded = json.loads(self._answer(home, job, end))
        with open(home / "blocks", "rb") as file:
            file.seek(self._read_bytes)
            text = file.read()
        self._read_bytes += len(text)
        return list(_parse(text.decode("ascii"), loaded))

    def _start(self) -> Path:
        home = Path(self._stack.enter_context(TemporaryDirectory(prefix="edgekit-")))
        _make_root(self._folder / "rootfs", home / "root", self._processor)
        command = _command(self._folder, self._processor, self._target, home)
        pipe = subprocess.PIPE
        with open(home / "errors", "wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=errors, env={}, start_new_session=True
            )
        self._stack.callback(_end, self._process)
        self._home, self._read_bytes = home, 0
        return home

    def _answer(self, home: Path, job: Path, end: float) -> bytes:
        """Return the response line to a job; end the process if it does not respond."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.write(f"{job}\n".encode())
            process.stdin.flush()
        ready, _, _ = select([process.stdout], [], [], max(end - time.monotonic(), 0.0))
        line = process.stdout.readline() if ready else b""
        if line.startswith(b"{"):
            return line
        lines = (home / "errors").read_text("utf-8", "replace").strip().splitlines()
        self.close()
        if not ready:
            raise EngineError("the time limit for runs under qemu was reached")
        raise EngineError(f"the run under qemu failed: {lines[-1] if lines else 'it printed no message'}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def _command(folder: Path, processor: Processor, target: str, home: Path) -> list[str]:
    counting = folder / "counting"
    # The device's packages come first: numpy beside EdgeKit is this machine's.
    packages = ("edgekit", target_package(target))
    sources = (folder / "site", *(Path(import_module(name).__file__ or "").parents[1] for name in packages))
    settings = {
        "PYTHONPATH": os.pathsep.join(map(str, sources)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "HOME": str(home),
        "EDGEKIT_CACHE": str(home / "cache"),
    }
    return [
        *(str(counting / "ld.so"), "--library-path", str(counting), str(counting / "qemu-aarch64")),
        *("-cpu", processor.qemu, "-L", str(home / "root")),
        *("-plugin", f"{counting / 'block_counts.so'},out={home / 'blocks'}"),
        *(word for name, value in settings.items() for word in ("-E", f"{name}={value}")),
        str(folder / "rootfs" / "usr" / "bin" / "python3.11"),
        *("-m", "edgekit.compiler.evaluate.arm.counted_run"),
    ]


def _make_root(rootfs: Path, root: Path, processor: Processor) -> None:
    """Make the aarch64 file system with a /proc/cpuinfo: qemu shows this machine's, in which libraries do not
    find an ARM processor. XNNPACK selects its kernels by the part number."""
    (root / "proc").mkdir(parents=True)
    for entry in rootfs.iterdir():
        if entry.name not in WITHOUT:
            (root / entry.name).symlink_to(entry)
    (root / "proc" / "cpuinfo").write_text(
        "".join(cpuinfo(processor, number) for number in range(os.cpu_count() or 1)), "utf-8"
    )


def cpuinfo(processor: Processor, number: int) -> str:
    """Return Linux's entry for one processor in /proc/cpuinfo (arch/arm64/kernel/cpuinfo.c)."""
    variant, revision = processor.variant
    facts = {
        "processor": number,
        "Features": processor.features,
        "CPU implementer": "0x41",
        "CPU architecture": 8,
        "CPU variant": f"0x{variant:x}",
        "CPU part": f"0x{processor.part:x}",
        "CPU revision": revision,
    }
    return "".join(f"{name}\t: {value}\n" for name, value in facts.items()) + "\n"


def _parse(text: str, loaded: Mapping[str, int]) -> Iterator[BasicBlock]:
    """Parse the plugin's lines: address, runs and instructions of a block, hexadecimal."""
    libraries = sorted((start, name) for name, start in loaded.items())
    for line in text.splitlines():
        if not line:
            continue
        address, runs, code = line.split()
        position = int(address, 16)
        start, library = max((entry for entry in libraries if entry[0] <= position), default=(0, ""))
        words = tuple(int(code[i : i + 8], 16) for i in range(0, len(code), 8))
        yield BasicBlock(library, position - start, int(runs, 16), words)
