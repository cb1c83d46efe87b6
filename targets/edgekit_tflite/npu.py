"""A file for the NPU of a phone, compiled ahead of time by LiteRT with the vendor's SDK. Host side.

It holds what the NPU takes as the vendor's program, and runs on that chip alone, by LiteRT's CompiledModel.
Nothing here can run it: ``model.tflite`` is what was verified, and what an app falls back to.

    https://ai.google.dev/edge/litert/next/npu                       the delivery in an app
    https://github.com/google-ai-edge/LiteRT (litert/python/aot)     the vendors' plug-ins and chips
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from edgekit.errors import EngineError, MissingDependency, UsageError
from edgekit_tflite.compile_npu import COMPILED, FACTS, UNKNOWN_CHIP
from edgekit_tflite.run import FILE

SECONDS = 600
"""The networks that were tried took 0.4 to 4 s."""


class Sdk(NamedTuple):
    """Package with a vendor's SDK, which LiteRT's plug-in for the vendor's chips loads.

    Attributes:
        module: LiteRT's module of the vendor; the SDK's ends with the same name.
        package: Name of the SDK's package; pip downloads the SDK from its vendor, under the vendor's licence.
    """

    module: str
    package: str
    install: str


def _on_pypi(module: str) -> Sdk:
    package = f"ai-edge-litert-sdk-{module.replace('_', '-')}"
    return Sdk(module, package, f"read the vendor's licence, then pip install {package}")


SDKS = {
    "Google": _on_pypi("google_tensor"),
    "MediaTek": _on_pypi("mediatek"),
    "Qualcomm": _on_pypi("qualcomm"),
    "Samsung": Sdk("samsung", "ai_edge_litert_sdk_samsung", "it is not on PyPI; ask Samsung for it"),
}


def npu_files(files: Mapping[str, bytes], chip: str) -> dict[str, bytes]:
    """Return the file for the NPU of a chip, and a text about it.

    Args:
        chip: Vendor and chip as LiteRT names them, e.g. ``Qualcomm SM8650``.

    Raises:
        UsageError: LiteRT has no plug-in for the chip, or its NPU takes none of the operators.
        MissingDependency: the vendor's SDK is not installed.
        EngineError: its compiler fails, or takes longer than SECONDS.
    """
    vendor, _, model = chip.partition(" ")
    sdk = SDKS.get(vendor)
    if sdk is None or not model:
        raise UsageError(
            f"--npu {chip}: give VENDOR CHIP, e.g. 'Qualcomm SM8650'; vendors: {', '.join(SDKS)}"
        )
    if find_spec(f"ai_edge_litert_sdk_{sdk.module}") is None:
        raise MissingDependency(sdk.package, f"compiling for the NPU of {chip}", sdk.install)
    with tempfile.TemporaryDirectory(prefix="edgekit-") as name:
        folder = Path(name)
        (folder / FILE).write_bytes(files[FILE])
        _compile(folder, sdk.module, model, chip)
        facts = json.loads((folder / FACTS).read_text("utf-8"))
        if not facts["on_npu"]:
            raise UsageError(f"the NPU of {chip} takes none of the model's {facts['operators']} operators")
        title = chip.replace(" ", "_")
        return {
            f"{title}.tflite": (folder / COMPILED).read_bytes(),
            f"{title}.txt": _text(chip, facts).encode(),
        }


def _compile(folder: Path, vendor: str, model: str, chip: str) -> None:
    command = [sys.executable, "-m", "edgekit_tflite.compile_npu", str(folder), vendor, model]
    environment = {**os.environ, "TMPDIR": str(folder)}  # where LiteRT leaves its log
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        raise EngineError(f"LiteRT's compiler for {chip} took longer than {SECONDS} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        logged = [line for log in folder.glob("*.error") for line in log.read_text("utf-8").splitlines()]
        lines += [line for line in logged if "error" in line.lower() or "└" in line]
        reason = lines[-1].strip("└ ") if lines else f"it ended with code {done.returncode}"
        if done.returncode == UNKNOWN_CHIP:
            raise UsageError(f"--npu {chip}: LiteRT {reason}")
        raise EngineError(f"LiteRT's compiler for {chip} failed: {reason[:500]}")


def _text(chip: str, facts: Mapping[str, int]) -> str:
    parts = "1 part" if facts["partitions"] == 1 else f"{facts['partitions']} parts"
    return f"""\
{facts["on_npu"]} of {facts["operators"]} operators are compiled for the NPU of {chip}, in {parts}.
Not run: EdgeKit has no such chip. The file without the chip's name was verified: fall back to it.
LiteRT's CompiledModel runs this file, with Accelerator.NPU and Accelerator.CPU, on this chip only.
"""
