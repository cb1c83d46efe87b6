"""What a case of the corpus is, and the plainest ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ESCAPE = "\x1b]0;mine\x07\x1b[2J"
"""A terminal's title, then its screen erased."""


class Case(NamedTuple):
    """A crafted file.

    Attributes:
        use: What is done with what ``make`` wrote, by its name in use.py.
        make: Writes it into a folder of its own.
        why: A part of the one error that comes of it; of a store, of what it says of the bundle that it
            does not start.
    """

    use: str
    make: Callable[[Path], Path]
    why: str


def file(name: str, content: bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(content)
        return path

    return make


def pipe(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        os.mkfifo(folder / name)
        return folder / name

    return make


def link(name: str, target: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).symlink_to(target)
        return folder / name

    return make
