"""Word error rate of transcripts."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.compiler.evaluate.error_rate import Edits, count_edits, error_rate
from edgekit.compiler.evaluate.label_files.transcripts import read_transcripts
from edgekit.compiler.evaluate.label_metric import LabelMetric, Scores
from edgekit.processing.card import Card
from edgekit.processing.predictions.transcribe import Transcript
from edgekit.processing.transcripts.words import words_of


def measure(truth: str, prediction: Transcript, card: Card) -> Edits:
    """Count the edits between words, in small letters and without punctuation."""
    return count_edits(truth, prediction.text, words_of(truth), words_of(prediction.text))


def score(measures: Sequence[Edits], card: Card) -> Scores:
    """Compute the edits over all labelled words."""
    return error_rate(measures)


ACCURACY = LabelMetric("WER", "words", read_transcripts, measure, score, is_error=True)
