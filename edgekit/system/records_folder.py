"""Folder of what builds record: timings, ratios, searches, observations, tracebacks, messages of exporters.

A process that opens a stranger's model may be taken over by it. So each model has a folder of its own, named
by its content, and that process may write to no other: nothing that it writes is believed of another model.
The candidates that a search shipped are the only hint for another one, which measures them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path

from edgekit.system import ownership
from edgekit.system.atomic_files import private_folder
from edgekit.system.cache_folder import cache_folder
from edgekit.system.regular_file import sha256_of

MODELS = "models"
"""Folder of the models' folders, in the cache folder."""
FOLDERS_LIMIT, BYTES_LIMIT = 500, 2 << 30
"""Above these the folders that were used least recently are removed."""
FILES_LIMIT = 100_000
"""Files of a model, and of records below the models' folders, that are looked at."""

_of_model: ContextVar[Path | None] = ContextVar("_of_model", default=None)


def records_folder() -> Path:
    """Return the folder of the model that is built in this context, else the cache folder."""
    return _of_model.get() or cache_folder()


@contextlib.contextmanager
def records_in(folder: Path | None) -> Iterator[None]:
    """Record in a model's folder; None: in the cache folder."""
    token = _of_model.set(folder)
    try:
        yield
    finally:
        _of_model.reset(token)


def model_folder(files: Iterable[Path]) -> Path | None:
    """Make the folder of a model.

    Args:
        files: Its files; of folders all that is in them.

    Returns:
        The folder; None if it can't be made or belongs to somebody else.
    """
    folder = cache_folder() / MODELS / _digest(files)
    try:
        private_folder(folder)
        ownership.refuse_foreign(folder)
        os.utime(folder)
    except OSError:
        return None
    _remove_oldest(folder.parent, folder)
    return folder


def _digest(files: Iterable[Path]) -> str:
    """sha256 over the contents of files, and over the names of those in folders."""
    digest = hashlib.sha256()
    for path in files:
        entries = sorted(path.rglob("*"))[:FILES_LIMIT] if path.is_dir() else [path]
        for entry in entries:
            with contextlib.suppress(OSError):
                content = bytes.fromhex(sha256_of(entry))
                name = "" if entry is path else os.fspath(entry.relative_to(path))
                digest.update(os.fsencode(name) + b"\0" + content)
    return digest.hexdigest()[:32]


def _remove_oldest(folder: Path, current: Path) -> None:
    """Remove the folders that were used least recently, above the limits. Links in them are not followed."""
    entries = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False) and entry.path != str(current):
                entries.append((entry.stat(follow_symlinks=False).st_mtime_ns, entry.path))
    size = _size_bytes(str(current))
    for number, (_, path) in enumerate(sorted(entries, reverse=True), 1):
        size += _size_bytes(path)
        if number >= FOLDERS_LIMIT or size > BYTES_LIMIT:
            import shutil  # here: it takes 3 ms

            shutil.rmtree(path, ignore_errors=True)


def _size_bytes(folder: str) -> int:
    size = 0
    for above, _, names in os.walk(folder):
        for name in names[:FILES_LIMIT]:
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(above, name)).st_size
    return size
