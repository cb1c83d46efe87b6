"""Character error rate of lines of text."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.compiler.evaluate.error_rate import Edits, count_edits, error_rate
from edgekit.compiler.evaluate.label_files.transcripts import read_transcripts
from edgekit.compiler.evaluate.label_metric import LabelMetric, Scores
from edgekit.processing.card import Card
from edgekit.processing.predictions.read_text import TextLine


def measure(truth: str, prediction: TextLine, card: Card) -> Edits:
    """Count the edits between characters, without blanks at the ends, as jiwer does."""
    truth, text = truth.strip(), prediction.text.strip()
    return count_edits(truth, text, list(truth), list(text))


def score(measures: Sequence[Edits], card: Card) -> Scores:
    """Compute the edits over all labelled characters."""
    return error_rate(measures)


ACCURACY = LabelMetric("CER", "characters", read_transcripts, measure, score, is_error=True)
