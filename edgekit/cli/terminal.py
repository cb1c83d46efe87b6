"""Output of the command line: lines that fit the terminal, highlighted words, errors also as JSON.

Results go to stdout, everything else to stderr. Piped output is not wrapped and has no colour.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from edgekit.errors import with_local_lines

NEXT = ("next:", "try:", "show:", "ship:")
"""Starts of lines that hold a command to paste. They are not wrapped here, to be copied as one line."""
WHOLE_LINE = "fastest"
"""First word of a line that is styled as a whole: the variant to use."""
STYLES: Mapping[str, Mapping[str, Any]] = {
    "rejected": {"fg": "yellow"},
    "bug": {"fg": "red"},
    "verdict": {"bold": True},
    "warning": {"fg": "yellow"},
    WHOLE_LINE: {"bold": True},
    **{start: {"bold": True} for start in NEXT},
}
"""First word of a line -> its style on a terminal. Colour never carries meaning alone."""
NARROWEST = 40
"""Columns; on narrower terminals lines are not wrapped."""
ROOM_COLUMNS = 24
"""At least this many for the continuation of a cell."""


def answer(as_json: bool, result: Mapping[str, Any], text: str) -> None:
    """Print the result: the JSON object, or the text wrapped to the terminal; its pip lines work here."""
    text = with_local_lines(text)
    if as_json:
        click.echo(json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False))
    elif sys.stdout.isatty():
        click.echo(_styled(fitted(text, _columns())), color=_colour(sys.stdout))
    else:
        click.echo(text)


def fail(kind: str, message: str, findings: Sequence[Any], as_json: bool) -> None:
    """Print an error; with ``as_json`` the object too."""
    if as_json:
        error_object(kind, message, findings)
    terminal = sys.stderr.isatty()
    text = fitted(f"error: {message}", _columns()) if terminal else f"error: {message}"
    styled = text.replace("error:", click.style("error:", fg="red"), 1)
    click.echo(styled, err=True, color=_colour(sys.stderr))


def error_object(kind: str, message: str, findings: Sequence[Any]) -> None:
    """Print the error as the one JSON object on stdout."""
    click.echo(json.dumps({"error": {"kind": kind, "message": message, "findings": findings}}, indent=2))


def fitted(text: str, columns: int) -> str:
    """Break lines that are longer than ``columns``, except commands; a continuation is indented to the cell
    that it continues.

    >>> print(fitted("  note      ort-fp32  outside the fast path: 2 CONV_2D", 44))
      note      ort-fp32
                outside the fast path: 2 CONV_2D
    """
    if columns < NARROWEST:
        return text
    return "\n".join(part for line in text.split("\n") for part in _broken(line, columns))


def _broken(line: str, columns: int) -> list[str]:
    """Break a line before the cell that is too wide, or else between words. Two spaces separate cells."""
    if line.lstrip().startswith(NEXT):
        return [line]
    indent = max((start for start in _cells(line) if start <= columns - ROOM_COLUMNS), default=0)
    parts = []
    while len(line) > columns:
        start = max((start for start in _cells(line) if indent < start <= columns), default=0)
        end = line.find("  ", start) if "  " in line[start:] else len(line)
        whole = start and end > columns and end - start <= columns - indent
        cut = start - 1 if whole else line.rfind(" ", indent + 1, columns + 1)
        if cut < 0:  # one long word: a path, a hash
            cut = line.find(" ", columns)
            if cut < 0:
                break
        parts.append(line[:cut].rstrip())
        line = " " * indent + line[cut:].strip()
    return [*parts, line]


def _cells(line: str) -> list[int]:
    return [match.end() for match in re.finditer(r"(?:^|\S) {2,}(?=\S)", line)]


def _styled(text: str) -> str:
    lines = []
    for line in text.split("\n"):
        word = line.split(maxsplit=1)[0] if line.strip() else ""
        styled = line if word == WHOLE_LINE else word
        lines.append(line.replace(styled, click.style(styled, **STYLES[word]), 1) if word in STYLES else line)
    return "\n".join(lines)


def _columns() -> int:
    return shutil.get_terminal_size().columns


def _colour(stream: Any) -> bool:
    return bool(stream.isatty()) and "NO_COLOR" not in os.environ
