"""Files that are written whole or not at all, and survive a power cut once they are there."""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Lock

from edgekit.system import ownership


def write_atomically(path: Path, pieces: Iterable[bytes | memoryview], mode: int = 0o666) -> None:
    """Write a file: a draft beside it, flushed to the disk, then renamed over it.

    Readers of ``path`` find the old content or the new one, also when the process or the machine dies.

    Args:
        path: The file.
        pieces: Its content.
        mode: Its permissions, less those of the umask; 0o600 keeps it to this user whatever that is.

    Raises:
        OSError: it cannot be written; ``path`` is untouched.
    """
    draft = path.with_name(f".{path.name}.{os.urandom(4).hex()}.part")
    try:
        with open(draft, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
        flush_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def flush_folder(folder: Path) -> None:
    """Make a rename inside of ``folder`` survive a power cut, where the system lets a folder be flushed."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def private_folder(folder: Path, parents: bool = True) -> None:
    """Make a folder, and what is missing above it, for this user only; refuse one that others may write to.

    Raises:
        OSError: as :func:`edgekit.system.ownership.refuse_foreign`, or it cannot be made.
    """
    try:
        ownership.refuse_foreign(folder, parents)
        return
    except FileNotFoundError:
        pass
    missing = [folder]
    while not os.path.lexists(missing[-1].parent):
        missing.append(missing[-1].parent)
    for each in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another process was faster
            os.mkdir(each, 0o700)
        with contextlib.suppress(PermissionError):  # a folder that may be searched and not read
            flush_folder(each.parent)
    ownership.refuse_foreign(folder, parents)


@contextlib.contextmanager
def locked(path: Path, seconds: float) -> Iterator[None]:
    """Hold the lock of a file, which is made; one process at a time. The system drops that of one that dies.

    Raises:
        OSError: the file cannot be made, is a link or a pipe, or another process has held the lock for
            ``seconds``.
    """
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows: a folder with open files cannot be renamed away there
        yield
        return
    with open(ownership.open_regular(path, os.O_RDWR | os.O_CREAT), "r+b") as file:
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


def map_file(name: str, limit_bytes: int) -> mmap.mmap:
    """Map a regular file whole, read-only. For files that nobody changes in place: cut short, it is a SIGBUS.

    Raises:
        OSError, ValueError, OverflowError: it is absent, unreadable, no regular file, empty or too large.
    """
    handle, _ = _open_plain(name, limit_bytes)
    try:
        return mmap.mmap(handle, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(handle)


class PlainFile:
    """A regular file, open for reading at any place, from any thread. Nothing is mapped: a file that is cut
    short or overwritten meanwhile gives fewer or other bytes, and never a signal.

    The descriptor is closed with the last reference, so that no reader's is taken away.

    Attributes:
        size: When it was opened, in bytes.

    Raises:
        OSError, ValueError, OverflowError: it is absent, unreadable, no regular file, empty or too large.
    """

    def __init__(self, name: str, limit_bytes: int) -> None:
        self._handle = -1
        self._lock = Lock()
        self._handle, self.size = _open_plain(name, limit_bytes)

    def read(self, at: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``at`` on; fewer where the file ends before.

        Raises:
            OSError: they cannot be read.
        """
        if hasattr(os, "pread"):
            return os.pread(self._handle, size, at)
        with self._lock:  # Windows has one position for all
            os.lseek(self._handle, at, os.SEEK_SET)
            return os.read(self._handle, size)

    def close(self) -> None:
        """Close it now. Only for who knows that nobody else reads."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def __del__(self) -> None:
        self.close()


def _open_plain(name: str, limit_bytes: int) -> tuple[int, int]:
    """The descriptor of a regular file, and its size."""
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    flags |= getattr(os, "O_NONBLOCK", 0)  # opening a named pipe must not wait for its writer
    handle = os.open(name, flags)
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            raise ValueError("it is not a file")
        if facts.st_size == 0:
            raise ValueError("it is empty")
        if facts.st_size > limit_bytes:
            raise ValueError(f"it has {facts.st_size} bytes; {limit_bytes} are allowed")
    except BaseException:
        os.close(handle)
        raise
    return handle, facts.st_size
