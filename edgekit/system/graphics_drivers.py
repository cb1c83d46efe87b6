"""Identity of this machine's graphics drivers: a verdict about a GPU holds until they change."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from pathlib import Path

from edgekit.system.formats import strict_json
from edgekit.system.regular_file import open_regular

ICD_FOLDERS = ("/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/usr/share/vulkan/icd.d")
"""Where Linux lists its Vulkan drivers:
https://github.com/KhronosGroup/Vulkan-Loader/blob/main/docs/LoaderDriverInterface.md"""
KERNEL_DRIVERS = ("/proc/driver/nvidia/version", "/sys/module/nvidia/version")
MANIFEST_LIMIT_BYTES = 1 << 16


def drivers_identity() -> str:
    """Return 12 hexadecimal digits that change with the system's graphics drivers.

    On Linux: the kernel, NVIDIA's module, and each Vulkan driver's library by size and time of change. On
    other systems: the system's version, whose updates bring the drivers. A driver that is installed by itself
    on Windows is not noticed.
    """
    facts = [sys.platform, platform.release(), platform.version()]
    if sys.platform == "linux":
        facts += [_text(Path(path)) for path in KERNEL_DRIVERS]
        facts += [f"{path} {_library(path)}" for path in vulkan_drivers()]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]


def vulkan_drivers() -> list[Path]:
    """Return the manifests of the Vulkan drivers of this Linux machine."""
    named = os.environ.get("VK_DRIVER_FILES") or os.environ.get("VK_ICD_FILENAMES")
    if named:
        return [Path(path) for path in named.split(os.pathsep)]
    return sorted(path for folder in ICD_FOLDERS for path in Path(folder).glob("*.json"))


def _library(manifest: Path) -> str:
    """Return size and time of change of a driver's library; "" if it is not found."""
    try:
        content = strict_json.decode(_text(manifest).encode(), manifest.name, MANIFEST_LIMIT_BYTES)
        name = str(content["ICD"]["library_path"])
        folders = [manifest.parent, *(Path(f) for f in os.environ.get("LD_LIBRARY_PATH", "").split(":") if f)]
        folders += [
            Path("/usr/lib") / f"{platform.machine()}-linux-gnu",
            Path("/usr/lib64"),
            Path("/usr/lib"),
        ]
        state = next(path for folder in folders if (path := folder / name).is_file()).stat()
    except (strict_json.JsonError, KeyError, TypeError, StopIteration, OSError):
        return ""
    return f"{state.st_size} {state.st_mtime_ns}"


def _text(path: Path) -> str:
    try:
        with open_regular(path) as file:
            return file.read(MANIFEST_LIMIT_BYTES).decode(errors="replace")
    except OSError:
        return ""
