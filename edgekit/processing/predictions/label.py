"""Names of classes."""

from __future__ import annotations

from collections.abc import Sequence


def label_of(labels: Sequence[str], index: int) -> str:
    """The label of a class, or its number where there is no label for it.

    >>> label_of(["cat", "dog"], 1), label_of([], 7)
    ('dog', '7')
    """
    return labels[index] if 0 <= index < len(labels) and labels[index] else str(index)
