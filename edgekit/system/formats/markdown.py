"""Markdown from plain text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from edgekit.errors import printable


def escaped(text: str) -> str:
    r"""Escape one line of plain text: names and reasons of a bundle make no HTML, links, images or rows.

    >>> print(escaped("a|b <img> [x](y)"))
    a\|b \<img> \[x\](y)
    """
    line = printable(" ".join(text.split()))
    return re.sub(r"[\\`*\[\]<&|]", lambda match: f"\\{match[0]}", line)


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of plain texts.

    >>> print(markdown_table(("a", "b"), [("1", "x|y")]))
    | a | b |
    | --- | --- |
    | 1 | x\\|y |
    """
    lines = [[escaped(cell) for cell in columns], ["---"] * len(columns)]
    lines += [[escaped(cell) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
