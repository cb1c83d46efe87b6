"""Fidelity of text: characters that are read the same."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.processing.predictions.read_text import TextLine
from edgekit.tasks.read_text.metric import character_accuracy, edit_distance


def line(text: str) -> TextLine:
    return TextLine(text, 1.0, np.ones(len(text), np.float32), np.zeros(len(text), np.float32))


def test_character_accuracy_is_one_less_the_error_rate() -> None:
    assert character_accuracy(
        [line("price"), line("19.99")], [line("price"), line("19.98")]
    ) == pytest.approx(0.9)
    assert character_accuracy([line("ab")], [line("xyzxyz")]) == 0
    assert character_accuracy([line("ab")], [line("")]) == 0
    assert character_accuracy([line("")], [line("ab")]) is None


@pytest.mark.parametrize(
    ("a", "b", "edits"),
    [("", "", 0), ("", "abc", 3), ("abc", "abc", 0), ("abc", "axc", 1), ("abcd", "bcde", 2)],
)
def test_edit_distance(a: str, b: str, edits: int) -> None:
    assert edit_distance(a, b) == edit_distance(b, a) == edits
