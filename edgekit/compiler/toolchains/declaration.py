"""Declarations of targets' toolchains, and their discovery.

The packages of a vendor's compiler often can't be installed beside EdgeKit's: they need another numpy,
another onnx, another Python. A target with such a compiler has a module with ``TOOLCHAIN = Toolchain(...)``
and an entry point of the group ``edgekit.toolchains``, named after it.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, cast

from edgekit.errors import ProfileError, UsageError
from edgekit.target import registry

GROUP = "edgekit.toolchains"


class Toolchain(NamedTuple):
    """A vendor's compiler in an environment of its own.

    Attributes:
        name: As ``edgekit toolchain install`` takes it.
        purpose: What it does, for people.
        python: The version of its Python, e.g. ``3.11``.
        platform: The system and machine that its wheels are for, as ``this_platform`` gives them.
        lock: A file of pip's: every package with its exact version and hashes, dependencies included.
        imports: Modules that must be importable before the environment is kept.
        terms: What a user agrees to by installing it.
        size_mb: Of the environment on disk.
        memory_mb: That a process in it may take.
        hint: Where pip finds what its usual index lacks; "" for nothing.
    """

    name: str
    purpose: str
    python: str
    platform: str
    lock: Path
    imports: tuple[str, ...]
    terms: str
    size_mb: int
    memory_mb: int
    hint: str = ""

    @property
    def install(self) -> str:
        """The command that installs it."""
        return f"edgekit toolchain install {self.name}"


def this_platform() -> str:
    """The system and machine of this Python, e.g. ``linux-x86_64``."""
    return f"{sys.platform}-{platform.machine().lower()}"


def toolchains() -> dict[str, Toolchain]:
    """Those of all installed targets, by name, in the order of the names."""
    return {name: _load(module) for name, module in sorted(_modules().items())}


def find_toolchain(name: str) -> Toolchain:
    """A toolchain by its name.

    Raises:
        UsageError: no target has one of that name.
    """
    module = _modules().get(name)
    if module is None:
        known = ", ".join(sorted(_modules())) or "none"
        raise UsageError(f"no target has a toolchain {name!r}; there are: {known}")
    return _load(module)


def toolchain_of(target: str) -> Toolchain | None:
    """The toolchain that a target's package declares; None if it has none, or if there is no such target."""
    try:
        package = registry.target_package(target)
    except ProfileError:
        return None
    own = (module for module in _modules().values() if module.partition(".")[0] == package)
    return next((_load(module) for module in own), None)


@cache
def _modules() -> Mapping[str, str]:
    from importlib.metadata import entry_points  # here: it costs 15 ms

    return {point.name: point.value for point in entry_points(group=GROUP)}


def _load(module: str) -> Toolchain:
    return cast(Toolchain, import_module(module).TOOLCHAIN)
