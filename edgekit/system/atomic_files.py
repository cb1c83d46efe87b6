"""Atomic file writes that survive a crash or power cut, private folders, and file locks."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from edgekit.errors import UsageError
from edgekit.system import ownership
from edgekit.system.regular_file import open_regular

NAMED_CHARACTERS = 60
"""Characters of a file's name in that of its draft, which has at most 255 bytes too."""


def write_atomically(path: Path, pieces: Iterable[bytes | memoryview], mode: int = 0o666) -> None:
    """Write a file: a draft in the same folder, flushed to disk, then renamed over it.

    Readers of ``path`` see the old content or the new one, even if the process or the machine dies.

    Args:
        mode: Its permissions, restricted by the umask; 0o600 makes it private in any case.

    Raises:
        OSError: it cannot be written; ``path`` is untouched. The error names ``path``.
    """
    draft = path.with_name(f".{path.name[:NAMED_CHARACTERS]}.{os.urandom(4).hex()}.part")
    try:
        with open(draft, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
        flush_folder(path.parent)
    except OSError as problem:  # a full disk names no file, and a refused draft names itself
        raise OSError(problem.errno, problem.strerror or str(problem), str(path)) from problem
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def flush_folder(folder: Path) -> None:
    """Make renames in ``folder`` durable, on systems that can flush a folder."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def private_folder(folder: Path, parents: bool = True) -> None:
    """Create a private folder and its missing parents; refuse one that others may write to.

    Raises:
        OSError: as :func:`edgekit.system.ownership.refuse_foreign`, or it cannot be created.
    """
    try:
        ownership.refuse_foreign(folder, parents)
        return
    except FileNotFoundError:
        pass
    missing = [folder]
    while not os.path.lexists(missing[-1].parent):
        missing.append(missing[-1].parent)
    for directory in reversed(missing):
        with contextlib.suppress(FileExistsError):  # created by another process meanwhile
            os.mkdir(directory, 0o700)
        with contextlib.suppress(PermissionError):  # a folder with search but no read permission
            flush_folder(directory.parent)
    ownership.refuse_foreign(folder, parents)


@contextlib.contextmanager
def locked(path: Path, seconds: float) -> Iterator[None]:
    """Hold the lock of a file, which is created. The system releases the lock of a process that dies.

    Raises:
        OSError: the file cannot be created, is a link or a pipe, or another process holds the lock for longer
            than ``seconds``.
    """
    if sys.platform == "win32":  # not locked: there a folder with open files cannot be renamed
        yield
        return
    import fcntl

    with open_regular(path, follow_links=False, create=True) as file:
        end = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise TimeoutError(0, f"another process has held its lock for {seconds:g} s") from None
                time.sleep(0.01)
        yield


def need_empty(folder: Path) -> None:
    """Check that a folder is missing or empty.

    Raises:
        UsageError: it is not.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not an empty folder; choose another one. Nothing was written")


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield a draft next to ``folder``, which becomes ``folder`` at the end. An error leaves nothing.

    Args:
        folder: Destination; it must be missing or empty.

    Raises:
        UsageError: it is not an empty folder, or cannot be written to.
    """
    import tempfile  # here: it takes 4 ms of a start

    need_empty(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".edgekit-", dir=folder.parent) as draft:
            root = Path(draft, "draft")
            root.mkdir()
            yield root
            root.chmod(0o755)
            if folder.exists():
                folder.rmdir()
            root.rename(folder)
    except OSError as problem:
        raise UsageError(
            f"can't write to {folder}: {problem.strerror}; choose another folder. Nothing was written"
        ) from None
