"""Current step of this process, written where its parent can read it after a crash.

A child process calls :func:`leave_in` once; from then on a crumb costs about a microsecond. In any other
process it does nothing. A crash of native code loses everything else that was in memory.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from edgekit.errors import EngineError

SIZE_BYTES = 4096
"""Size of the file, which is shared memory while it is in use."""
_HEADER = struct.Struct("=QII")
"""Number of crumbs left so far, bytes of the stage, bytes of the place."""
_ROOM = (SIZE_BYTES - _HEADER.size) // 2

WITHIN = " > "
"""Separator between the names of steps, the outermost first."""

_shared: mmap.mmap | None = None
_count = 0
_stage = b""
_place = ""
_deaths: Mapping[str, str] = {}


def leave_in(path: Path, deaths: Mapping[str, str] | None = None) -> None:
    """Write all later crumbs into this file, which the parent made SIZE_BYTES long.

    Args:
        deaths: Place -> why a process that did the same work ended there. Those steps are not run again.
    """
    global _shared, _deaths
    _deaths = deaths or {}
    with open(path, "r+b") as file:
        _shared = mmap.mmap(file.fileno(), SIZE_BYTES)


def enter(stage: str) -> None:
    """Note that a stage begins or goes on."""
    global _stage
    _stage = _cut(stage)
    _write()


@contextmanager
def at_risk(step: str) -> Iterator[None]:
    """Note a step with native code that may end the process. Steps nest.

    Args:
        step: Name of the step, e.g. ``openvino-fp32``, unique within the step around it.

    Raises:
        EngineError: an earlier process ended in this step.
    """
    global _place
    if has_ended(step):
        raise EngineError(_deaths[_key(_inner(step))])
    outer, _place = _place, _inner(step)
    _write()
    try:
        yield
    finally:
        _place = outer
        _write()


def has_ended(step: str) -> bool:
    """Return whether an earlier process ended in this step, which would begin now."""
    return _key(_inner(step)) in _deaths


def _inner(step: str) -> str:
    return f"{_place}{WITHIN}{step}" if _place else step


def _key(place: str) -> str:
    return _cut(place).decode("utf-8", "replace")


def _write() -> None:
    global _count
    if _shared is None:
        return
    _count += 1
    text = _cut(_place)
    start = _HEADER.size + len(_stage)
    _shared[: start + len(text)] = _HEADER.pack(_count, len(_stage), len(text)) + _stage + text


def _cut(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")[:_ROOM]


def last() -> tuple[int, str, str]:
    """Return the last crumb of this process, in the form of :func:`read`."""
    return read(_shared[:] if _shared is not None else b"")


def read(content: bytes) -> tuple[int, str, str]:
    """Return the number of crumbs, the stage and the place from a file's content, which may be arbitrary
    bytes.

    >>> read(b"")
    (0, '', '')
    """
    if len(content) < _HEADER.size:
        return 0, "", ""
    count, of_stage, of_place = _HEADER.unpack_from(content)
    start, middle = _HEADER.size, _HEADER.size + min(of_stage, _ROOM)
    stage, place = content[start:middle], content[middle : middle + min(of_place, _ROOM)]
    return count, stage.decode("utf-8", "replace"), place.decode("utf-8", "replace")
