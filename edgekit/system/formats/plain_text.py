"""Tables, sizes and latencies as plain text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from edgekit.errors import printable


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table, with columns aligned on the left and two spaces apart.

    >>> print(*table(("a", "b"), [("long", "x"), ("s", "y")]), sep="\\n")
      a     b
      long  x
      s     y
    """
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    return [
        "  " + "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [columns, *rows]
    ]


def shortened(name: str, columns: int = 60) -> str:
    """Return a name for a table, without its middle if it is long: TensorFlow's are joined from several.

    >>> shortened("model/act/Relu;model/bn/FusedBatchNormV3;model/conv/Conv2D1", 30)
    'model/act/Relu.../conv/Conv2D1'
    """
    if len(name) <= columns:
        return name
    tail = (columns - 3) // 2
    return f"{name[: columns - 3 - tail]}...{name[-tail:]}"


def size(size_bytes: int) -> str:
    """Format a number of bytes in kB or MB.

    >>> size(3_678_356), size(512_000), size(900)
    ('3.7 MB', '0.51 MB', '0.9 kB')
    """
    if size_bytes < 100_000:
        return f"{size_bytes / 1e3:.1f} kB"
    return f"{size_bytes / 1e6:.{1 if size_bytes >= 1e6 else 2}f} MB"


def kibibytes(size_bytes: int) -> str:
    """Format a number of bytes in KiB, the unit for the memories of small devices.

    >>> kibibytes(103_696), kibibytes(262_144)
    ('101.3 KiB', '256 KiB')
    """
    whole, rest = divmod(size_bytes, 1024)
    return f"{size_bytes / 1024:.1f} KiB" if rest else f"{whole} KiB"


def milliseconds(value: float) -> str:
    """Return a latency: three digits, in ms below a second.

    >>> milliseconds(7.2345), milliseconds(0.04), milliseconds(1234.0)
    ('7.23 ms', '0.04 ms', '1.23 s')
    """
    return f"{value / 1000:.3g} s" if value >= 1000 else f"{value:.3g} ms"


def duration(seconds: float) -> str:
    """Format a duration as hours, minutes and seconds.

    >>> duration(7.4), duration(84), duration(3700)
    ('7 s', '1:24 min', '1:01:40 h')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}:{rest:02} min"
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02} h"


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
