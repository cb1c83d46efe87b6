"""The calls that bring a file to the disk, in their order.

What a missing fsync costs shows only after a power cut, which no test can have; that the call is made, on the
right file, with everything written before it, is what can be seen. The calls are made as well as recorded.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest


class Call(NamedTuple):
    """A call: ``fsync`` of an inode with so many bytes, or ``rename`` of one to a path."""

    name: str
    inode: int
    size_bytes: int = 0
    to: str = ""


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """From here on, every fsync and rename of this process is added to the list."""
    calls: list[Call] = []
    fsync = os.fsync

    def flushed(handle: int) -> None:
        facts = os.fstat(handle)
        calls.append(Call("fsync", facts.st_ino, facts.st_size))
        fsync(handle)

    def renaming(real: Any) -> Any:
        def rename(source: Any, target: Any) -> None:
            calls.append(Call("rename", os.lstat(source).st_ino, to=str(target)))
            real(source, target)

        return rename

    monkeypatch.setattr(os, "fsync", flushed)
    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, renaming(getattr(os, name)))
    return calls


def flushed_before(calls: list[Call], path: Path, end: int) -> bool:
    """Whether a file or folder that is now at ``path`` was flushed, whole, by one of the first calls."""
    facts = path.stat()
    size_bytes = facts.st_size if path.is_file() else None
    return any(
        call.name == "fsync" and call.inode == facts.st_ino and size_bytes in (None, call.size_bytes)
        for call in calls[:end]
    )


def renamed_to(calls: list[Call], path: Path) -> int:
    """The place of the call that gave ``path`` its name."""
    (place,) = [n for n, call in enumerate(calls) if call.name == "rename" and call.to == str(path)]
    return place
