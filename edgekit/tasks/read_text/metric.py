"""Text: what it says, by the rate of right characters."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.compiler.evaluate.task_metric import TaskMetric
from edgekit.processing.predictions.read_text import TextLine


def character_accuracy(reference: Sequence[TextLine], predictions: Sequence[TextLine]) -> float | None:
    """1 - character error rate (edits over the float model's characters), at least 0; None if that
    reads nothing."""
    expected = sum(len(line.text) for line in reference)
    edits = sum(edit_distance(a.text, b.text) for a, b in zip(reference, predictions, strict=True))
    return max(0.0, 1 - edits / expected) if expected else None


def edit_distance(a: str, b: str) -> int:
    """Count the insertions, deletions and substitutions from one text to the other (Levenshtein, 1966).

    >>> edit_distance("kitten", "sitting")
    3
    """
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (letter != other))
    return row[-1]


METRIC = TaskMetric("characters kept", character_accuracy, minimum=0.97)
