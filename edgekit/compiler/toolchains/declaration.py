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
    """Vendor's compiler in an environment of its own.

    Attributes:
        name: Name for ``edgekit toolchain install``.
        purpose: Purpose, in words for users.
        python: Version of its Python, e.g. ``3.11``.
        platform: System and machine of its wheels, in the form that ``this_platform`` returns.
        lock: Lock file of pip: every package with its exact version and hashes, dependencies included. For
            an engine's release, the requirements that pip resolves.
        imports: Modules that must be importable before the environment is kept.
        terms: Terms that a user accepts by installing it; "" if there are none beyond the packages' licences.
        size_mb: Size of the environment on disk, in MB.
        memory_mb: Maximum memory of a process in it, in MB.
        hint: Location of packages that pip's usual index lacks; "" if it has all.
    """

    name: str
    purpose: str
    python: str
    platform: str
    lock: Path | tuple[str, ...]
    imports: tuple[str, ...]
    terms: str
    size_mb: int
    memory_mb: int
    hint: str = ""

    @property
    def install(self) -> str:
        """Return the command that installs the toolchain."""
        return f"edgekit toolchain install {self.name}"

    def requirements(self) -> bytes:
        """Return the lock file, or the requirements as one."""
        if isinstance(self.lock, Path):
            return self.lock.read_bytes()
        return "".join(f"{requirement}\n" for requirement in self.lock).encode()


def this_platform() -> str:
    """Return the system and machine of this Python, e.g. ``linux-x86_64``."""
    return f"{sys.platform}-{platform.machine().lower()}"


def toolchains() -> dict[str, Toolchain]:
    """Return the toolchains of all installed targets by name, sorted by name."""
    return {name: _load(module) for name, module in sorted(_modules().items())}


def find_toolchain(name: str) -> Toolchain:
    """Return a toolchain by its name.

    Raises:
        UsageError: no target has one of that name.
    """
    module = _modules().get(name)
    if module is None:
        available = ", ".join(sorted(_modules())) or "none"
        raise UsageError(f"no target has a toolchain {name!r}; available: {available}")
    return _load(module)


def toolchain_of(target: str) -> Toolchain | None:
    """Return the toolchain that a target's package declares; None without a toolchain or target."""
    try:
        package = registry.target_package(target)
    except ProfileError:
        return None
    modules = (module for module in _modules().values() if module.partition(".")[0] == package)
    return next((_load(module) for module in modules), None)


@cache
def _modules() -> Mapping[str, str]:
    from importlib.metadata import entry_points  # here: it costs 15 ms

    return {point.name: point.value for point in entry_points(group=GROUP)}


def _load(module: str) -> Toolchain:
    return cast(Toolchain, import_module(module).TOOLCHAIN)
