"""Scores of classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.tasks.classify.decode import ClassifyOptions, classify_logits, classify_probabilities

Array = npt.NDArray[Any]
WHOLE = ImagePlacement(64, 32, 64, 32)  # the frame is the input


def test_logits_become_probabilities() -> None:
    logits = np.log(np.array([[0.1, 0.6, 0.3]], np.float32)) + 500  # exp(500) would overflow
    found = classify_logits({"scores": logits}, ClassifyOptions(top=2), WHOLE)
    assert found.indices.tolist() == [1, 2]
    np.testing.assert_allclose(found.scores, [0.6, 0.3], rtol=1e-4)


def test_integer_probabilities_are_scaled() -> None:
    found = classify_probabilities(
        {"scores": np.array([[-128, 127, -64]], np.int8)},
        ClassifyOptions(scale=1 / 256, zero_point=-128),
        WHOLE,
    )
    assert found.indices.tolist() == [1, 2, 0]
    np.testing.assert_allclose(found.scores, [255 / 256, 0.25, 0])
