"""Fidelity of text: regions that are found again, characters that are read the same."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.compiler.evaluate.task_metrics.text import character_accuracy, edit_distance, region_f1
from edgekit.processing.tasks.detect_text.prediction import TextRegions
from edgekit.processing.tasks.read_text.prediction import TextLine


def regions(*boxes: tuple[float, float, float, float]) -> TextRegions:
    corners = [[[x1, y1], [x2, y1], [x2, y2], [x1, y2]] for x1, y1, x2, y2 in boxes]
    return TextRegions(np.array(corners, np.float32).reshape(-1, 4, 2), np.ones(len(boxes), np.float32))


def line(text: str) -> TextLine:
    return TextLine(text, 1.0, np.ones(len(text), np.float32), np.zeros(len(text), np.float32))


def test_regions_are_matched_once() -> None:
    one, other = (0.0, 0.0, 40.0, 10.0), (0.0, 50.0, 40.0, 60.0)
    assert region_f1([regions(one, other)], [regions(other, one)]) == 1
    assert region_f1([regions(one, other)], [regions(one)]) == pytest.approx(2 / 3)
    assert region_f1([regions(one)], [regions(one, one, other)]) == pytest.approx(2 / 4)
    assert region_f1([regions(one)], [regions((0, 0, 19, 10))]) == 0  # less than half of it
    assert region_f1([regions(one)], [regions((0, 0, 21, 10))]) == 1
    assert region_f1([regions(one)], [regions()]) == 0
    assert region_f1([regions()], [regions(one)]) is None


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
