"""Other versions of some packages for one build, before those that this Python has."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from edgekit.errors import UsageError
from edgekit.system.atomic_files import locked, private_folder
from edgekit.system.cache_folder import cache_folder
from edgekit.system.regular_file import read_plain

LOCK_SECONDS = 1800.0
"""Another rebuild may be installing the same."""
LIMIT_BYTES = 1 << 20


def installed_tools(requirements: Path) -> dict[str, str]:
    """Environment variables for a process that finds the packages of a requirements file first.

    They are installed once for each content of the file, into the cache folder.

    Raises:
        UsageError: the file can't be read, or pip can't install it.
    """
    try:
        content = read_plain(requirements, LIMIT_BYTES)
    except OSError as problem:
        raise UsageError(
            f"{requirements} can't be read: {problem.strerror}; give a requirements file, as pip takes it"
        ) from None
    digest = hashlib.sha256(f"{sys.version}\n{sys.executable}\n".encode() + content).hexdigest()
    folder = cache_folder() / "tools" / digest[:32]
    private_folder(folder.parent)
    with locked(folder.with_suffix(".lock"), LOCK_SECONDS):
        if not folder.exists():
            _install(requirements, folder)
    search = os.pathsep.join([str(folder), *(os.path.abspath(entry) for entry in sys.path if entry)])
    return {**os.environ, "PYTHONPATH": search}


def _install(requirements: Path, folder: Path) -> None:
    draft = folder.with_suffix(".part")
    shutil.rmtree(draft, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command = [*pip, "--target", str(draft), "-r", str(requirements.absolute())]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        last = (ended.stderr.strip() or ended.stdout.strip()).splitlines()[-3:]
        raise UsageError("\n  ".join([f"pip can't install {requirements}", *last]))
    os.replace(draft, folder)
