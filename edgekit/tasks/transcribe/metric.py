"""Transcripts and written texts: how many words are the float model's."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.compiler.evaluate.task_metric import TaskMetric
from edgekit.processing.predictions.text2text import WrittenText
from edgekit.processing.predictions.transcribe import Transcript
from edgekit.processing.transcripts.words import word_edits, words_of

Text = Transcript | WrittenText


def word_accuracy(reference: Sequence[Text], predictions: Sequence[Text]) -> float | None:
    """1 - word error rate (edits over the float model's words), at least 0; None where that has no words."""
    words = sum(len(words_of(text.text)) for text in reference)
    edits = sum(word_edits(a.text, b.text) for a, b in zip(reference, predictions, strict=True))
    return max(0.0, 1 - edits / words) if words else None


METRIC = TaskMetric("words kept", word_accuracy, minimum=0.95)
