"""Text samples: the lines of UTF-8 files, one text per line.

The path of a line is that of a file in its file: ``reviews.txt/line-000012``, counted from 1.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from edgekit.errors import SampleError
from edgekit.system.regular_file import read_plain

TEXTS = (".txt",)
TEXT_FILE_LIMIT_BYTES = 64 << 20
LINES_LIMIT = 1_000_000
"""Most lines of a file."""
LINE = re.compile(r"line-(\d{6,9})", re.ASCII)


def is_line(path: Path) -> bool:
    """Return whether a path names a line of a file."""
    return path.parent.suffix.lower() in TEXTS and LINE.fullmatch(path.name) is not None


def text_lines(path: Path) -> list[Path]:
    line_paths = [path / f"line-{number:06d}" for number, line in enumerate(_lines(path), 1) if line.strip()]
    if not line_paths:
        raise SampleError(f"{path} has no text; write one text per line")
    return line_paths


def read_line(path: Path) -> str:
    """Read one text.

    Args:
        path: A path from :func:`text_lines`.

    Raises:
        SampleError: the file can't be read, or no longer has this line.
    """
    match = LINE.fullmatch(path.name)
    assert match is not None
    lines, number = _lines(path.parent), int(match[1])
    if not 1 <= number <= len(lines):
        raise SampleError(f"{path.parent} no longer has line {number}; it has {len(lines)} lines")
    return lines[number - 1].strip()


def _lines(path: Path) -> tuple[str, ...]:
    try:
        facts = path.stat()
        return _lines_of(path, facts.st_mtime_ns, facts.st_size)
    except FileNotFoundError:
        raise SampleError(f"{path}: file not found") from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise SampleError(f"{path} can't be read as text: {reason}") from None


@lru_cache(maxsize=1)
def _lines_of(path: Path, changed_ns: int, size: int) -> tuple[str, ...]:
    lines = read_plain(path, TEXT_FILE_LIMIT_BYTES).decode("utf-8-sig").split("\n")
    if len(lines) > LINES_LIMIT:
        raise ValueError(f"it has {len(lines)} lines; the limit is {LINES_LIMIT}")
    return tuple(lines)
