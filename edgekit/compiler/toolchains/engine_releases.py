"""Releases of engines, each in an environment of its own: ``edgekit toolchain install onnxruntime==1.17``.

A build with ``--runtime 'onnxruntime>=1.17'`` runs its variants there too. pip resolves the packages that a
release needs, since anyone may name any release; those of vendors' toolchains are locked.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from edgekit.compiler.toolchains.declaration import Toolchain, find_toolchain, this_platform
from edgekit.compiler.toolchains.environment import installed, root
from edgekit.errors import ProfileError, UsageError
from edgekit.target import registry

RELEASE_CHILD = Path(__file__).with_name("release_child.py")
"""The script that runs variants there."""
_RELEASE = re.compile(r"([a-z][a-z0-9-]{0,63})(==|>=)([0-9]{1,9}(?:\.[0-9]{1,9}){0,3})")
SIZE_MB, MEMORY_MB = 300, 4000
"""Measured: ONNX Runtime 1.17 takes 217 MB, tflite-runtime 2.14 110 MB, OpenVINO 2024.0 225 MB."""


def engine_packages() -> dict[str, str]:
    """Return the distributions that are engines, with the target whose engine each is, sorted by name."""
    packages: dict[str, str] = {}
    for target in registry.target_names():
        try:
            packages |= dict.fromkeys(registry.engine(target).ENGINE.releases, target)
        except (ProfileError, ImportError):  # a broken target has no engine; whoever uses it says so
            continue
    return dict(sorted(packages.items()))


def parse_requirement(text: str) -> tuple[str, str]:
    """Parse the oldest release of an engine that a bundle is to run on.

    >>> parse_requirement("onnxruntime>=1.17")
    ('onnxruntime', '1.17')

    Raises:
        UsageError: it is not ``PACKAGE>=VERSION`` with the package of an engine.
    """
    return _parsed(text, ">=")


def release_toolchain(name: str) -> Toolchain:
    """Return the toolchain of a release, ``PACKAGE==VERSION``.

    Raises:
        UsageError: the name has another form, or the package is not an engine.
    """
    package, version = _parsed(name, "==")
    # Wheels that were built before numpy 2 do not load with it; later ones load with numpy 1 too.
    numpy = "numpy<2" if sys.version_info < (3, 13) else "numpy"
    return Toolchain(
        name=f"{package}=={version}",
        purpose="runs variants on this release of the engine",
        python=".".join(map(str, sys.version_info[:2])),
        platform=this_platform(),
        lock=(f"{package}=={version}", numpy),
        imports=(package.replace("-", "_"), "numpy"),
        terms="",
        size_mb=SIZE_MB,
        memory_mb=MEMORY_MB,
    )


def named_toolchain(name: str) -> Toolchain:
    """Return a target's toolchain by its name, or that of a release, ``PACKAGE==VERSION``.

    Raises:
        UsageError: no target has one of that name, or the package is not an engine.
    """
    return release_toolchain(name) if "==" in name else find_toolchain(name)


def installed_releases() -> list[Toolchain]:
    """Return the toolchains of the releases that are installed, sorted by name."""
    folders = root().glob("*==*-*") if root().is_dir() else ()
    releases = [
        release_toolchain(name) for name in sorted({folder.name.rpartition("-")[0] for folder in folders})
    ]
    return [toolchain for toolchain in releases if installed(toolchain) is not None]


def _parsed(text: str, sign: str) -> tuple[str, str]:
    match = _RELEASE.fullmatch(text.replace(" ", "").lower())
    packages = engine_packages()
    if match is None or match[2] != sign or match[1] not in packages:
        raise UsageError(
            f"{text!r} is not the release of an engine; give PACKAGE{sign}VERSION, e.g. "
            f"onnxruntime{sign}1.17, with one of the packages {', '.join(packages)}"
        )
    return match[1], match[3]
