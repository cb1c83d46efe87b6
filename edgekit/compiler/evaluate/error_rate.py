"""Error rates of texts: edits over the words or characters that are labelled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edgekit.compiler.evaluate.label_metric import Scores
from edgekit.processing.transcripts.words import prefix_edits
from edgekit.system.formats.plain_text import shortened
from edgekit.tensor_spec import Array

SHOWN_CHARS = 40
"""Maximum number of characters of a text in a fault."""


class Edits(NamedTuple):
    """Edits between a labelled and a predicted text (Levenshtein, 1966).

    Attributes:
        edits: Number of units to insert, delete or replace.
        units: Number of labelled words or characters.
        truth: The labelled text.
        text: The predicted text.
    """

    edits: int
    units: int
    truth: str
    text: str


def count_edits(truth: str, text: str, units: Sequence[str], others: Sequence[str]) -> Edits:
    """Count the edits from the labelled units, words or characters, to the predicted ones."""
    return Edits(prefix_edits(units, others)[-1], len(units), truth, text)


def error_rate(rows: Sequence[Edits]) -> Scores:
    """Compute the edits of all samples over all labelled units: 0 if all texts are equal."""
    edits = np.array([row.edits for row in rows])
    units = np.array([row.units for row in rows])

    def rate(weights: Array) -> float | None:
        total = int(weights @ units)
        return float(weights @ edits) / total if total else None

    faults = [
        f"{row.edits} edits: {shortened(row.text, SHOWN_CHARS)}, labelled {shortened(row.truth, SHOWN_CHARS)}"
        for row in rows
    ]
    return Scores(rate, edits.astype(np.float64), faults, int(units.sum()))
