"""Transcription: how many words are the float model's."""

from __future__ import annotations

import re
from collections.abc import Sequence

from edgekit.compiler.evaluate.task_metric import TaskMetric
from edgekit.processing.tasks.transcribe.prediction import Transcript


def word_accuracy(reference: Sequence[Transcript], predictions: Sequence[Transcript]) -> float | None:
    """1 - word error rate (edits over the float model's words), at least 0; None where that has no words."""
    words = sum(len(words_of(each.text)) for each in reference)
    edits = sum(word_edits(a.text, b.text) for a, b in zip(reference, predictions, strict=True))
    return max(0.0, 1 - edits / words) if words else None


def words_of(text: str) -> list[str]:
    """Return the words of a text, in small letters and without punctuation.

    >>> words_of("No matter: try AGAIN, don't stop.")
    ['no', 'matter', 'try', 'again', "don't", 'stop']
    """
    return re.findall(r"[\w']+", text.lower())


def word_edits(a: str, b: str) -> int:
    """Return the words to insert, delete or replace from one text to the other (Levenshtein, 1966).

    >>> word_edits("fail again, fail better", "Fail again. Fail much better!")
    1
    """
    others = words_of(b)
    row = list(range(len(others) + 1))
    for i, word in enumerate(words_of(a), 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(others, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (word != other))
    return row[-1]


METRIC = TaskMetric("text 1 - WER", word_accuracy, drop=0.05)
