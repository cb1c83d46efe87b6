"""Reading of small files whose names come from the user or from a file from elsewhere: a regular file, and no
more of it than was allowed. A pipe would be waited for, for ever; a device may have no end."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO


class NotRegularFileError(OSError):
    """It is no file that may be read; ``strerror`` says why."""

    def __init__(self, why: str, path: Path) -> None:
        super().__init__(0, why, str(path))


def open_regular(path: Path, *, follow: bool = True) -> BinaryIO:
    """Open a regular file for reading.

    Args:
        path: The file.
        follow: Whether the name may be a symbolic link.

    Raises:
        NotPlainError: it is a link that is not followed, a pipe, a socket, a device or a folder.
        OSError: it can't be opened.
    """
    flags = os.O_RDONLY
    # O_NONBLOCK: opening a pipe that nobody writes to returns at once.
    for name in ("O_NONBLOCK", "O_BINARY", "O_CLOEXEC", *(() if follow else ("O_NOFOLLOW",))):
        flags |= getattr(os, name, 0)
    if "\0" in str(path):
        raise NotRegularFileError("its name holds a zero byte", path)
    if not follow and path.is_symlink():  # Windows has no O_NOFOLLOW
        raise NotRegularFileError("it is a link", path)
    handle = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise NotRegularFileError("it is not a regular file", path)
    return os.fdopen(handle, "rb")


def read_plain(path: Path, limit_bytes: int, *, follow: bool = True) -> bytes:
    """All of a regular file of at most ``limit_bytes``.

    Raises:
        NotPlainError: as :func:`open_regular`, or it is larger.
        OSError: it can't be read.
    """
    with open_regular(path, follow=follow) as file:
        content = file.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        raise NotRegularFileError(f"it has more than {limit_bytes >> 20} MB", path)
    return content
