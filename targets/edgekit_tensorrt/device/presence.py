"""What of NVIDIA's this machine has, found without importing any of it, and what that makes possible."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from edgekit.errors import install_line

GPU_DEVICES = ("/dev/nvhost-gpu", "/dev/nvidia0")
"""A Jetson's, and any other machine's."""
COMPILER_EXTRA = "tensorrt-check"
"""EdgeKit's extra that installs NVIDIA's compiler."""


def gpu_device() -> str | None:
    """The device file of a GPU; None where there is none."""
    return next((device for device in GPU_DEVICES if Path(device).exists()), None)


def tensorrt_installed() -> bool:
    """Whether the system's TensorRT can be imported."""
    return find_spec("tensorrt") is not None


def compiler_version() -> str | None:
    """NVIDIA's compiler, e.g. ``tensorrt-rtx 1.7.1.116``; None where it is not installed."""
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
    """For ``edgekit doctor``: name, what is here or None, what it is for."""
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
