"""What this process is at, written where its parent still finds it after a crash.

A child process calls :func:`leave_in` once; from then on :func:`leave` costs about a microsecond. In any
other process it does nothing. A crash of native code loses everything else that was in memory.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

SIZE_BYTES = 4096
"""Of the file, which is shared memory while it is in use."""
_HEADER = struct.Struct("=QII")
"""Number of crumbs left so far, bytes of the stage, bytes of the place."""
_ROOM = (SIZE_BYTES - _HEADER.size) // 2

_shared: mmap.mmap | None = None
_count = 0
_stage = b""


def leave_in(path: Path) -> None:
    """Write all later crumbs into this file, which the parent made SIZE_BYTES long."""
    global _shared
    with open(path, "r+b") as file:
        _shared = mmap.mmap(file.fileno(), SIZE_BYTES)


def enter(stage: str) -> None:
    """Note that a stage begins; no place in it is known yet."""
    global _stage
    if _shared is not None:
        _stage = stage.encode("utf-8", "backslashreplace")[:_ROOM]
        leave("")


def leave(place: str) -> None:
    """Note what comes next: native code that may end the process.

    Args:
        place: Where in the stage, e.g. ``node divide (Div)``; it may hold anything of the model.
    """
    global _count
    if _shared is None:
        return
    _count += 1
    text = place.encode("utf-8", "backslashreplace")[:_ROOM]
    start = _HEADER.size + len(_stage)
    _shared[: start + len(text)] = _HEADER.pack(_count, len(_stage), len(text)) + _stage + text


def last() -> tuple[int, str, str]:
    """What this process left last, as :func:`read` gives it."""
    return read(_shared[:] if _shared is not None else b"")


def read(content: bytes) -> tuple[int, str, str]:
    """Number of crumbs, the stage and the place, from a file's content, which may be anything.

    >>> read(b"")
    (0, '', '')
    """
    if len(content) < _HEADER.size:
        return 0, "", ""
    count, of_stage, of_place = _HEADER.unpack_from(content)
    start, middle = _HEADER.size, _HEADER.size + min(of_stage, _ROOM)
    stage, place = content[start:middle], content[middle : middle + min(of_place, _ROOM)]
    return count, stage.decode("utf-8", "replace"), place.decode("utf-8", "replace")
