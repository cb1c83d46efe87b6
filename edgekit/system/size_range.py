"""A range of sizes of one dimension: ``1..512``."""

from __future__ import annotations

import re
from collections.abc import Sequence

_SIZE = re.compile(r"([1-9][0-9]{0,8})(?:\.\.([1-9][0-9]{0,8}))?")
LISTED_SHAPES = 4


def as_range(text: object) -> range | None:
    """Return the sizes of ``1..512``; None if it is something else.

    >>> as_range("1..512"), as_range("8..4"), as_range(8)
    (range(1, 513), None, None)
    """
    match = _SIZE.fullmatch(text) if isinstance(text, str) else None
    if match is None or match[2] is None or int(match[1]) >= int(match[2]):
        return None
    return range(int(match[1]), int(match[2]) + 1)


def range_text(sizes: range) -> str:
    """Return a range as it is written, e.g. ``1..512``."""
    return f"{sizes[0]}..{sizes[-1]}"


def listed(sizes: Sequence[str]) -> str:
    """Return at most LISTED_SHAPES shapes to list instead of one with ranges, each about half as large as the
    next.

    >>> listed(["1", "1..512"]), listed(["320..640", "300..450"])
    ('1x64,1x128,1x256,1x512', '320x450,640x450')
    """
    ends = [sorted(map(int, size.split(".."))) for size in sizes]
    shapes = [[high[-1] for high in ends]]
    while len(shapes) < LISTED_SHAPES:
        smaller = [
            half if (half := -(-size // 2)) >= low[0] else size
            for size, low in zip(shapes[0], ends, strict=True)
        ]
        if smaller == shapes[0]:
            break
        shapes.insert(0, smaller)
    return ",".join("x".join(map(str, shape)) for shape in shapes)
