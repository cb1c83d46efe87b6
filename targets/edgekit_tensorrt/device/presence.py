"""Detection of NVIDIA hardware and software on this machine, without imports, and their uses."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from edgekit.errors import install_line

GPU_DEVICES = ("/dev/nvhost-gpu", "/dev/nvidia0")
"""A Jetson's, and any other machine's."""
COMPILER_EXTRA = "tensorrt-check"
"""EdgeKit's extra that installs NVIDIA's compiler."""


def gpu_device() -> str | None:
    """Return the device file of a GPU, or None."""
    return next((device for device in GPU_DEVICES if Path(device).exists()), None)


def tensorrt_installed() -> bool:
    """Check whether the system's TensorRT is installed."""
    return find_spec("tensorrt") is not None


def compiler_version() -> str | None:
    """Return NVIDIA's compiler, e.g. ``tensorrt-rtx 1.7.1.116``; None if it is not installed."""
    if find_spec("tensorrt_rtx_bindings") is None:
        return None
    from importlib.metadata import PackageNotFoundError, version

    for package in ("tensorrt-rtx-cu12-bindings", "tensorrt-rtx-cu13-bindings", "tensorrt-rtx"):
        try:
            return f"tensorrt-rtx {version(package)}"
        except PackageNotFoundError:
            continue
    return "tensorrt-rtx of unknown version"


def tools() -> list[tuple[str, str | None, str]]:
    """Return rows for ``edgekit doctor``: name, installed version or None, and purpose."""
    return [
        (
            "NVIDIA's compiler",
            compiler_version(),
            f"checks each file built, without a GPU ({install_line(COMPILER_EXTRA)})",
        ),
        (
            "NVIDIA GPU",
            gpu_device(),
            "builds and runs engines with TensorRT",
        ),
    ]
