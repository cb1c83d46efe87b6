"""Python for aarch64 on this machine: qemu's user mode, set up by tests/arm/setup.

What it computes is what an ARM processor computes; how long it takes says nothing of one.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.tensor_spec import Array

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 300


def folder() -> Path:
    """Where tests/arm/setup puts things; it need not exist."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("EDGEKIT_ARM") or cache / "edgekit-arm")


def python(*arguments: str, cpu: str = "cortex-a76") -> subprocess.CompletedProcess[str]:
    """Run Python as it runs on an aarch64 device: with the device's packages and our sources, no others."""
    there = folder()
    path = os.pathsep.join(map(str, (ROOT, ROOT / "targets", there / "site")))
    settings = {
        "PYTHONPATH": path,
        "PYTHONDONTWRITEBYTECODE": "1",
        "EDGEKIT_CACHE": os.environ["EDGEKIT_CACHE"],
    }
    command = [str(there / "qemu-aarch64-static"), "-cpu", cpu, "-L", str(there / "rootfs")]
    command += [word for name, value in settings.items() for word in ("-E", f"{name}={value}")]
    command += [str(there / "rootfs" / "usr" / "bin" / "python3.11"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def ran(bundles: Path, cpu: str = "cortex-a76") -> list[dict[str, Any]]:
    """What device.py says of the bundles in a folder."""
    done = python(str(Path(__file__).with_name("device.py")), str(bundles), cpu=cpu)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def answers(bundles: Path, name: str) -> dict[str, Array]:
    with np.load(bundles / f"{name}.answers.npz") as arrays:
        return dict(arrays)
