"""Names of classes, and lists of labelled things."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def label_of(labels: Sequence[str], index: int) -> str:
    """Return the label of a class, or its index if it has no label.

    >>> label_of(["cat", "dog"], 1), label_of([], 7)
    ('dog', '7')
    """
    return labels[index] if 0 <= index < len(labels) and labels[index] else str(index)


def listed(rows: Iterable[tuple[str, float, str]]) -> str:
    """Return a line for each thing: label, score, description.

    >>> print(listed([("cat", 0.5, "at 1,2"), ("horse", 0.25, "at 3,4")]))
    cat    0.500  at 1,2
    horse  0.250  at 3,4
    """
    entries = list(rows)
    width = max((len(label) for label, _, _ in entries), default=0)
    lines = (f"{label:{width}}  {score:.3f}  {description}" for label, score, description in entries)
    return "\n".join(lines) or "nothing found"


def corners_text(box: Sequence[float]) -> str:
    """Return the corners of a box, x1, y1, x2, y2 in pixels, as text.

    >>> corners_text((1.2, 2.0, 30.7, 40.0))
    '1,2 to 31,40'
    """
    x1, y1, x2, y2 = box
    return f"{x1:.0f},{y1:.0f} to {x2:.0f},{y2:.0f}"
