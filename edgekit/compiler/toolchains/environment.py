"""Locations of toolchain environments, and which of them are installed.

    EDGEKIT_CACHE/toolchains/NAME-0a1b2c3d4e5f/
        bin/python ...     created by Python's venv
        toolchain.json     written last: a folder without it does not count as installed

The folder's name has the digest of the lock file: another lock file has another environment.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from edgekit.compiler.toolchains.declaration import Toolchain, toolchain_of
from edgekit.errors import MissingDependency, ProfileError
from edgekit.system import ownership
from edgekit.system.cache_folder import cache_folder
from edgekit.system.formats import strict_json
from edgekit.target.installed_profiles import find_profile
from edgekit.tensor_spec import Json

RECORD = "toolchain.json"
RECORD_LIMIT_BYTES = 1 << 16
DIGITS = 12


class Environment(NamedTuple):
    """Installed environment of a toolchain.

    Attributes:
        toolchain: Toolchain of the environment.
        folder: Folder of the environment.
        python: Path of its interpreter.
    """

    toolchain: Toolchain
    folder: Path
    python: Path

    def reads(self) -> list[str]:
        """Return the folders that its Python reads: its own, and that of its base Python."""
        folders = [str(self.folder)]
        binary = os.path.realpath(self.python)
        return [*folders, os.path.dirname(os.path.dirname(binary))]


def root() -> Path:
    """Return the folder of all environments; it need not exist."""
    return cache_folder() / "toolchains"


def lock_digest(toolchain: Toolchain) -> str:
    """Compute the SHA-256 of the lock file, the Python and the platform."""
    content = toolchain.requirements()
    return hashlib.sha256(f"{toolchain.python}\n{toolchain.platform}\n".encode() + content).hexdigest()


def folder_of(toolchain: Toolchain) -> Path:
    """Return the folder of the toolchain's environment, installed or not."""
    return root() / f"{toolchain.name}-{lock_digest(toolchain)[:DIGITS]}"


def python_in(folder: Path) -> Path:
    """Return the interpreter of an environment in this folder."""
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def installed(toolchain: Toolchain) -> Environment | None:
    """Return a toolchain's environment; None if it is not installed, or if other users may write to it."""
    folder = folder_of(toolchain)
    record = _record(folder)
    if record is None or record.get("lock") != lock_digest(toolchain):
        return None
    return Environment(toolchain, folder, python_in(folder))


def require(toolchain: Toolchain, needed_for: str) -> Environment:
    """Return a toolchain's environment.

    Raises:
        MissingDependency: it is not installed; the text has the command that does it.
    """
    environment = installed(toolchain)
    if environment is None:
        raise MissingDependency(f"the toolchain {toolchain.name}", needed_for, f"run {toolchain.install}")
    return environment


def environments_of(names: Iterable[str]) -> list[Environment]:
    """Return the installed environments of the targets or device profiles of these names, each once."""
    by_folder: dict[str, Environment] = {}
    for name in names:
        try:
            toolchain = toolchain_of(find_profile(name).target)
        except ProfileError:  # whoever uses the name says so
            continue
        environment = None if toolchain is None else installed(toolchain)
        if environment is not None:
            by_folder[str(environment.folder)] = environment
    return list(by_folder.values())


def all_folders(name: str) -> list[Path]:
    """Return all folders of a toolchain's environments: of this lock and others, finished or not."""
    if not root().is_dir():
        return []
    return sorted(
        folder
        for folder in root().iterdir()
        if folder.name.rpartition("-")[0] == name and len(folder.name.rpartition("-")[2]) == DIGITS
    )


def _record(folder: Path) -> dict[str, Json] | None:
    try:
        ownership.refuse_foreign(folder)
        content = ownership.read_own(folder / RECORD, RECORD_LIMIT_BYTES)
        record = strict_json.decode(content, RECORD, RECORD_LIMIT_BYTES)
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None
