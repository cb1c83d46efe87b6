"""Environments of vendors' compilers that can't be installed next to EdgeKit's packages.

They need another numpy, another onnx, another Python. The user makes a virtual environment, and names its
Python: ``EDGEKIT_<TARGET>_PYTHON=/opt/compiler/bin/python``.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from edgekit.errors import MissingDependency, ProfileError, UsageError
from edgekit.target.installed_profiles import find_profile

MEMORY_BYTES = 6_000_000_000
"""Maximum memory of a process in an environment."""
VERSION_SECONDS = 60.0


class Environment(NamedTuple):
    """Python environment of a target's compiler.

    Attributes:
        python: Path of the interpreter, as the user wrote it: a virtual environment's is a link.
    """

    name: str
    python: Path

    def reads(self) -> list[str]:
        """Return the folders that its Python reads: its own, and that of its base Python."""
        return [str(self.python.parents[1]), os.path.dirname(os.path.dirname(os.path.realpath(self.python)))]


def variable_of(target: str) -> str:
    return f"EDGEKIT_{target.upper()}_PYTHON"


def environment_of(target: str) -> Environment | None:
    """Return the environment of a target's compiler. None means that the user named none."""
    variable = variable_of(target)
    if not (text := os.environ.get(variable, "")):
        return None
    if not os.path.isabs(text) or not os.access(text, os.X_OK) or os.path.isdir(text):
        raise UsageError(f"{variable} is {text!r}; set it to the full path of a Python, or unset it")
    return Environment(target, Path(text))


def require(target: str, package: str, version: str, needed_for: str, install: str) -> Environment:
    """Return the environment of a target's compiler, which has a package in this version.

    Args:
        version: The version that the target was tested with.
        needed_for: Action that needs it, for the error.
        install: Command or instruction that makes the environment, for the error.

    Raises:
        MissingDependency: no environment is named, or it has another version.
        UsageError: the variable does not name a program.
    """
    environment = environment_of(target)
    if environment is None:
        raise MissingDependency(f"{package} {version}", needed_for, install)
    if (installed := _version(str(environment.python), package)) != version:
        needs = f"{needed_for} with {variable_of(target)}, which has {installed or 'another package'},"
        raise MissingDependency(f"{package} {version}", needs, install)
    return environment


@cache
def _version(python: str, package: str) -> str:
    script = "import sys, importlib.metadata as m; print(m.version(sys.argv[1]))"
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        ended = subprocess.run(
            [python, "-I", "-c", script, package],
            capture_output=True, text=True, timeout=VERSION_SECONDS, check=True,
        )  # fmt: skip
        return ended.stdout.strip()
    return ""


def environments_of(names: Iterable[str]) -> list[Environment]:
    """Return the environments of the targets or device profiles of these names, each once."""
    environments: dict[str, Environment] = {}
    for name in names:
        # Who uses the name or the variable reports a wrong one.
        with contextlib.suppress(ProfileError, UsageError):
            target = find_profile(name).target
            if environment := environment_of(target):
                environments[target] = environment
    return list(environments.values())
