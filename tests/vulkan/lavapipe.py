"""The software GPU that tests/vulkan/setup unpacks, and Python with it as the machine's GPU.

It computes what a GPU's driver computes; how long that takes says nothing of a GPU.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

TIMEOUT_S = 300


def folder() -> Path:
    """Return where tests/vulkan/setup unpacks it; it need not exist."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("EDGEKIT_VULKAN") or cache / "edgekit-vulkan")


def driver() -> Path:
    """Return the driver's manifest."""
    return folder() / "usr/share/vulkan/icd.d/lvp_icd.json"


def environment() -> dict[str, str]:
    """Return the variables that make lavapipe the GPU of a process."""
    return {
        "LD_LIBRARY_PATH": str(folder() / "usr/lib" / f"{platform.machine()}-linux-gnu"),
        "VK_ICD_FILENAMES": str(driver()),
        "ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER": "1",
    }


def python(code: str, *arguments: str, timeout_s: float = TIMEOUT_S, program: str = sys.executable) -> str:
    """Run Python on a machine whose GPU is lavapipe; return what it printed."""
    done = subprocess.run(
        [program, "-c", code, *arguments],
        env={**os.environ, **environment()},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
