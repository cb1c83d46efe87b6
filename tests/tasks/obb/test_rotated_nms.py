"""Probabilistic IoU against the paper's formula in matrices, and which oriented boxes stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgekit.tasks.obb.rotated_nms import probabilistic_iou, suppress_oriented

Array = npt.NDArray[Any]


def by_matrices(one: Array, other: Array) -> float:
    """arXiv 2106.06072 in float64: Bhattacharyya and Hellinger distance of Gaussians."""

    def gaussian(box: Array) -> tuple[Array, Array]:
        x, y, width, height, angle = box.astype(np.float64)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        return np.array([x, y]), turn @ np.diag([width**2 / 12, height**2 / 12]) @ turn.T

    (mean, cov), (other_mean, other_cov) = gaussian(one), gaussian(other)
    middle = (cov + other_cov) / 2
    apart = (mean - other_mean) @ np.linalg.inv(middle) @ (mean - other_mean) / 8
    unlike = np.log(np.linalg.det(middle) / np.sqrt(np.linalg.det(cov) * np.linalg.det(other_cov))) / 2
    return float(1 - np.sqrt(1 - np.exp(-(apart + unlike))))


def boxes(count: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    places, sizes = rng.uniform(0, 60, (count, 2)), rng.uniform(5, 40, (count, 2))
    return np.concatenate([places, sizes, rng.uniform(-4, 4, (count, 1))], axis=1).astype(np.float32)


def test_is_the_papers() -> None:
    ones, others = boxes(20, 0), boxes(30, 1)
    expected = [[by_matrices(one, other) for other in others] for one in ones]
    np.testing.assert_allclose(probabilistic_iou(ones, others), expected, atol=2e-4)


def test_boxes_without_area_are_finite() -> None:
    flat = np.zeros((3, 5), np.float32)
    flat[1, 2] = 10
    assert np.isfinite(probabilistic_iou(flat, flat)).all()


@pytest.mark.parametrize("seed", range(5))
def test_a_box_goes_when_any_better_one_of_its_class_covers_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    given, scores, classes = boxes(40, seed), rng.permutation(40).astype(np.float32), rng.integers(0, 2, 40)
    kept = suppress_oriented(given, scores, classes, 0.3, 100)
    expected = [
        i
        for i in np.argsort(-scores)
        if not any(
            scores[j] > scores[i] and classes[j] == classes[i] and by_matrices(given[i], given[j]) > 0.3
            for j in range(40)
        )
    ]
    assert kept.tolist() == expected
    assert len(kept) < 40
    assert suppress_oriented(given, scores, classes, 0.3, 3).tolist() == expected[:3]


@pytest.mark.parametrize("count", [0, 1])
def test_few_boxes(count: int) -> None:
    kept = suppress_oriented(boxes(count, 0), np.ones(count, np.float32), np.zeros(count, np.int64), 0.5, 10)
    assert kept.tolist() == list(range(count))
