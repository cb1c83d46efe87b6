"""Reading of regular files, and nothing else, whose names are untrusted: opening a pipe could block forever,
and a device has no end.

Symbolic links in the folder of a model are followed into the Hugging Face cache that the folder lies in, and
nowhere else. Any other link of a stranger's folder could put a file of this machine into a bundle.

``huggingface_hub`` keeps a repository so (``snapshot_download`` returns the folder of the commit):

    models--OWNER--NAME/blobs/HASH
    models--OWNER--NAME/snapshots/COMMIT/config.json -> ../../blobs/HASH
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Protocol

PIECE_BYTES = 1 << 20
"""Bytes of a file that are read at one time."""
SNAPSHOTS, BLOBS = "snapshots", "blobs"
ENTRIES_LIMIT = 100_000
LINK = "it is a symbolic link; replace it by the file that it leads to"


class NotRegularFileError(OSError):
    """It is not a regular file, or too large; ``strerror`` says which."""

    def __init__(self, reason: str, path: str | os.PathLike[str]) -> None:
        super().__init__(0, reason, os.fspath(path))


class Readable(Protocol):
    """File content to read at offsets: a whole file, or a part of one."""

    size: int

    def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``offset`` on; fewer at the end."""

    def close(self) -> None:
        """Release the file."""


class PlainFile:
    """An open regular file for thread-safe reads at any offset. It is not mapped: if it is truncated or
    overwritten meanwhile, reads return fewer or other bytes, but there is never a signal.

    The descriptor is closed with the last reference, so that no reader loses it.

    Attributes:
        size: When it was opened, in bytes.

    Raises:
        OSError, ValueError, OverflowError: it is missing, unreadable, not a regular file, empty or too large.
    """

    def __init__(self, name: str, limit_bytes: int) -> None:
        self._handle = -1
        self._lock = Lock()
        try:
            self._handle, facts = open_descriptor(name)
        except NotRegularFileError as problem:  # the caller's fault, not the machine's
            raise ValueError(problem.strerror) from None
        self.size = facts.st_size
        if self.size == 0:
            raise ValueError("it is empty")
        if self.size > limit_bytes:
            raise ValueError(f"it has {self.size} bytes; the limit is {limit_bytes}")

    def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``offset`` on; fewer at the end of the file.

        Raises:
            OSError: they cannot be read.
        """
        if sys.platform != "win32":
            return os.pread(self._handle, size, offset)
        with self._lock:  # Windows: the descriptor has a single position
            os.lseek(self._handle, offset, os.SEEK_SET)
            return os.read(self._handle, size)

    def close(self) -> None:
        """Close it now; only if there is no other reader."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def __del__(self, exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        if not exiting():  # then this module may be empty, and the system closes it
            self.close()


class Section:
    """A part of a file, or of bytes in memory, read as a file of its own."""

    def __init__(self, whole: Readable | memoryview, start: int, size: int) -> None:
        self._whole, self._start, self.size = whole, start, size

    def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``offset`` on of the part; fewer at its end.

        Raises:
            OSError: they cannot be read.
        """
        size = max(0, min(size, self.size - offset))
        first = self._start + offset
        if isinstance(self._whole, memoryview):
            return bytes(self._whole[first : first + size])
        return self._whole.read(first, size)

    def close(self) -> None:
        """Do nothing: the whole file belongs to another reader."""


def open_regular(path: Path, *, follow_links: bool = True, create: bool = False) -> BinaryIO:
    """Open a regular file for reading.

    Args:
        follow_links: Whether the name may be a symbolic link.
        create: Open it for writing too, and create it, private to this user, if it is missing.

    Raises:
        NotRegularFileError: it is a link that is not followed, a pipe, a socket, a device or a folder.
        OSError: it can't be opened.
    """
    if "\0" in str(path):
        raise NotRegularFileError("its name contains a zero byte", path)
    handle, _ = open_descriptor(path, follow_links=follow_links, create=create)
    return os.fdopen(handle, "r+b" if create else "rb")


def open_descriptor(
    path: str | os.PathLike[str], *, follow_links: bool = True, create: bool = False
) -> tuple[int, os.stat_result]:
    """Open like :func:`open_regular`; return a descriptor, which the caller closes, and its status."""
    if not follow_links and not hasattr(os, "O_NOFOLLOW") and os.path.islink(path):  # Windows
        raise NotRegularFileError("it is a symbolic link", path)
    flags = os.O_RDWR | os.O_CREAT if create else os.O_RDONLY
    # O_NONBLOCK: opening a pipe without a writer returns at once.
    for name in ("O_NONBLOCK", "O_BINARY", "O_CLOEXEC", *(() if follow_links else ("O_NOFOLLOW",))):
        flags |= getattr(os, name, 0)
    try:
        handle = os.open(path, flags, 0o600)
    except OSError:
        if not follow_links and os.path.islink(path):
            raise NotRegularFileError("it is a symbolic link", path) from None
        raise
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            raise NotRegularFileError("it is not a regular file", path)
        return handle, facts
    except BaseException:
        os.close(handle)
        raise


def read_plain(path: Path, limit_bytes: int, *, follow_links: bool = True) -> bytes:
    """Return the content of a regular file of at most ``limit_bytes``.

    Raises:
        NotRegularFileError: as :func:`open_regular`, or it is larger.
        OSError: it can't be read.
    """
    with open_regular(path, follow_links=follow_links) as file:
        content = file.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        limit = f"{limit_bytes >> 20} MB" if limit_bytes >> 20 else f"{limit_bytes >> 10} kB"
        raise NotRegularFileError(f"it has more than {limit}", path)
    return content


def sha256_of(path: Path, *, follow_links: bool = True) -> str:
    """Return the sha256 of a regular file in hexadecimal; the file is read in pieces.

    Raises:
        OSError: as :func:`open_regular`, or it can't be read.
    """
    digest = hashlib.sha256()
    with open_regular(path, follow_links=follow_links) as file:
        while piece := file.read(PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def followed(path: Path) -> Path:
    """Return the path of a file in a model's folder, or the target of the link in its place.

    Raises:
        NotRegularFileError: it is a link that does not lead into the folder's own cache.
    """
    if not os.path.islink(path):
        return path
    target = os.path.realpath(path)
    if os.path.dirname(target) == _blobs_of(os.path.realpath(path.parent)):
        return Path(target)
    raise NotRegularFileError(LINK, path)


def linked_files(folder: str) -> Iterator[str]:
    """Yield the targets of the links below a folder that ``followed`` follows into its cache."""
    blobs = _blobs_of(os.path.realpath(folder))
    with contextlib.suppress(OSError):
        for entry in islice(Path(folder).rglob("*"), ENTRIES_LIMIT) if blobs else ():
            if entry.is_symlink() and os.path.dirname(target := os.path.realpath(entry)) == blobs:
                yield target


def _blobs_of(folder: str) -> str | None:
    """Return the folder of contents of the cache that a folder is a snapshot of, or part of one. It must be a
    folder itself: the real path of what is behind a link is another one."""
    snapshots = next((parent for parent in Path(folder).parents if parent.name == SNAPSHOTS), None)
    return None if snapshots is None else str(snapshots.parent / BLOBS)
