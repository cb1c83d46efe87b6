"""Of boxes that cover each other the best stays, within each class."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.processing.nms import CANDIDATES, suppress

Array = npt.NDArray[Any]


def naive(boxes: Array, scores: Array, classes: Array, iou: float, top: int) -> list[int]:
    """The definition, box by box, in float64."""
    kept: list[int] = []
    for index in sorted(range(len(boxes)), key=lambda i: -scores[i]):
        x1, y1, x2, y2 = (float(v) for v in boxes[index])
        for other in kept:
            a1, b1, a2, b2 = (float(v) for v in boxes[other])
            shared = max(0.0, min(x2, a2) - max(x1, a1)) * max(0.0, min(y2, b2) - max(y1, b1))
            union = (x2 - x1) * (y2 - y1) + (a2 - a1) * (b2 - b1) - shared
            if classes[other] == classes[index] and shared > iou * union:
                break
        else:
            kept.append(index)
    return kept[:top]


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 40),
    st.integers(0, 1000),
    st.sampled_from([1, 3, 12]),
    st.sampled_from([0.3, 0.55, 0.8]),
    st.integers(1, 30),
)
def test_is_the_definition(count: int, seed: int, kinds: int, iou: float, top: int) -> None:
    rng = np.random.default_rng(seed)
    corner, size = rng.integers(0, 30, (2, count, 2))
    boxes = np.concatenate([corner, corner + size], axis=1).astype(np.float32)
    scores = rng.permutation(count).astype(np.float32)
    classes = rng.integers(0, kinds, count)
    assert suppress(boxes, scores, classes, iou, top).tolist() == naive(boxes, scores, classes, iou, top)


def test_equal_scores_keep_their_order() -> None:
    boxes = np.array([[0, 0, 4, 4], [0, 0, 4, 4], [9, 9, 12, 12]], np.float32)
    kept = suppress(boxes, np.ones(3, np.float32), np.zeros(3, np.int64), 0.5, 10)
    assert kept.tolist() == [0, 2]


def test_only_the_best_candidates_are_compared() -> None:
    count = CANDIDATES + 5
    corner = np.arange(count, dtype=np.float32)[:, None] * 10
    boxes = np.concatenate([corner, corner, corner + 5, corner + 5], axis=1)
    kept = suppress(boxes, np.arange(count, dtype=np.float32), np.zeros(count, np.int64), 0.5, count)
    assert kept.tolist() == list(range(count - 1, 4, -1))
