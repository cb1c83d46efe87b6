"""Scores of characters made by hand, and what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgekit.errors import EngineError
from edgekit.processing import load_card
from edgekit.tasks.read_text.ctc import CtcOptions, read_text

Array = npt.NDArray[Any]
CARDS = Path(__file__).resolve().parents[3] / "samples" / "cards"
LABELS = ["a", "b", ""]
FIRST = CtcOptions()


def steps(*classes: int, count: int = 4, score: float = 0.7) -> Array:
    scores = np.full((1, len(classes), count), (1 - score) / (count - 1), np.float32)
    scores[0, np.arange(len(classes)), classes] = score
    return scores


def test_repeated_characters_count_once_and_the_blank_parts_them() -> None:
    found = read_text({"scores": steps(0, 1, 1, 0, 1, 2, 2, 3, 1)}, FIRST, None, LABELS)
    assert found.text == "aab a"  # the label without text is a space
    assert found.score == pytest.approx(0.7)
    np.testing.assert_allclose(found.positions * 9, [1.5, 4.5, 5.5, 7.5, 8.5], rtol=1e-6)
    assert found.scores.shape == (5,)


def test_nothing_was_read() -> None:
    found = read_text({"scores": steps(0, 0, 0)}, FIRST, None, LABELS)
    assert (found.text, found.score, str(found)) == ("", 0.0, "no text read")
    assert found.as_json() == {"text": "", "score": 0.0}


def test_blank_and_space_at_the_end() -> None:
    options = CtcOptions(blank="last", space=True)
    found = read_text({"scores": steps(0, 2, 1, 3, 1)}, options, None, ["a", "b"])
    assert (found.text, str(found)) == ("a bb", "a bb  0.700")


def test_steps_may_be_the_first_dimension() -> None:
    scores = steps(1, 0, 2)
    found = read_text({"scores": scores.transpose(1, 0, 2)}, FIRST, None, LABELS)
    assert found.text == "ab"


def test_logits_become_probabilities() -> None:
    scores = np.log(steps(1, 0, 2, score=0.6)) + 300  # exp(300) would overflow
    found = read_text({"scores": scores}, CtcOptions(logits=True), None, LABELS)
    assert found.text == "ab"
    np.testing.assert_allclose(found.scores, [0.6, 0.6], rtol=1e-4)


def test_paddleocrs_characters() -> None:
    """6,623 of PP-OCRv4, one of them the ideographic space, then a space: 6,625 classes with the blank."""
    card = load_card(CARDS / "ch_PP-OCRv4_rec_infer.toml")
    assert card.task is not None
    assert len(card.task.labels) == 6623
    said = [card.task.labels.index(letter) + 1 for letter in "中l"]
    scores = steps(said[0], 6624, said[1], count=6625)
    found = read_text({"scores": scores}, card.task.options, None, card.task.labels)
    assert found.text == "中 l"


def test_labels_that_do_not_fit() -> None:
    with pytest.raises(EngineError) as error:
        read_text({"scores": steps(1)}, CtcOptions(space=True), None, LABELS)
    assert str(error.value) == (
        "the output has 4 classes, but 3 labels and a space with the blank make 5; correct labels or space "
        "in the card"
    )
    with pytest.raises(EngineError) as error:
        read_text({"scores": np.zeros((2, 3, 4))}, FIRST, None, LABELS)
    assert str(error.value) == "scores of text are [1, steps, classes], but the output is [2, 3, 4]"
    with pytest.raises(ValueError, match="blank is 'middle'; it must be 'first' or 'last'"):
        CtcOptions(blank="middle")
