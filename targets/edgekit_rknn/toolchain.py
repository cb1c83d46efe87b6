"""rknn-toolkit2 in an environment of its own: it asks for numpy 1, onnx 1.18 and protobuf 4."""

from __future__ import annotations

from pathlib import Path

from edgekit.compiler.toolchains.environment import Environment, require

NUMBER = "2.5.0"
VERSION = f"rknn-toolkit2 {NUMBER}"
LOCK = Path(__file__).with_name("toolchain.lock")
"""Packages with exact versions and hashes, for pip."""
INSTALL = (
    "make a virtual environment of Python 3.11 with the packages of toolchain.lock, and set "
    "EDGEKIT_RKNN_PYTHON to its Python (docs/chips.md, Rockchip)"
)


def environment(needed_for: str) -> Environment:
    """Return the environment of rknn-toolkit2.

    Raises:
        MissingDependency: ``EDGEKIT_RKNN_PYTHON`` is not set, or its Python has another version of it.
        UsageError: the variable does not name a program.
    """
    return require("rknn", "rknn-toolkit2", NUMBER, needed_for, INSTALL)
