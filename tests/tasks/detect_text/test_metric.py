"""Fidelity of text: regions that are found again."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.processing.predictions.detect_text import TextRegions
from edgekit.tasks.detect_text.metric import region_f1


def regions(*boxes: tuple[float, float, float, float]) -> TextRegions:
    corners = [[[x1, y1], [x2, y1], [x2, y2], [x1, y2]] for x1, y1, x2, y2 in boxes]
    return TextRegions(np.array(corners, np.float32).reshape(-1, 4, 2), np.ones(len(boxes), np.float32))


def test_regions_are_matched_once() -> None:
    one, other = (0.0, 0.0, 40.0, 10.0), (0.0, 50.0, 40.0, 60.0)
    assert region_f1([regions(one, other)], [regions(other, one)]) == 1
    assert region_f1([regions(one, other)], [regions(one)]) == pytest.approx(2 / 3)
    assert region_f1([regions(one)], [regions(one, one, other)]) == pytest.approx(2 / 4)
    assert region_f1([regions(one)], [regions((0, 0, 19, 10))]) == 0  # less than half of it
    assert region_f1([regions(one)], [regions((0, 0, 21, 10))]) == 1
    assert region_f1([regions(one)], [regions()]) == 0
    assert region_f1([regions()], [regions(one)]) is None
