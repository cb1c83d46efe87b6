"""Segmentation outputs made by hand, and against interpolation of all scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.errors import EngineError
from edgekit.processing.frame_sampling import linear_to_frame
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.tasks.segment.decode import (
    BinaryOptions,
    NoOptions,
    SegmentOptions,
    segment_binary,
    segment_classes,
    segment_scores,
)

Array = npt.NDArray[Any]
LABELS = ["sky", "road"]
WHOLE = ImagePlacement(4, 2, 4, 2)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 9),
    st.integers(1, 12),
    st.integers(1, 12),
    st.integers(1, 60),
    st.integers(1, 60),
    st.integers(0, 99),
)
def test_classes_are_those_of_all_scores_interpolated(
    count: int, rows: int, columns: int, width: int, height: int, seed: int
) -> None:
    """Only pixels between cells of different classes are interpolated; the result is as if all were."""
    scores = np.random.default_rng(seed).normal(0, 1, (1, count, rows, columns)).astype(np.float32)
    placed = ImagePlacement(width, height, columns, rows, columns / width, rows / height)
    found = segment_scores({"scores": scores}, SegmentOptions(), placed)
    everywhere = linear_to_frame(scores[0], placed)
    ours = np.take_along_axis(everywhere, found.classes[None].astype(np.int64), axis=0)[0]
    np.testing.assert_allclose(ours, everywhere.max(axis=0), atol=1e-5)


def test_the_best_class_may_be_none_of_the_cells_around() -> None:
    """Between a cell of class 0 and one of class 1 the second best of both wins, as interpolation has it."""
    scores = np.array([[[[9, 0]], [[0, 9]], [[7, 7]]]], np.float32)
    placed = ImagePlacement(6, 1, 2, 1, 1 / 3, 1)
    found = segment_scores({"scores": scores}, SegmentOptions(), placed)
    assert found.classes.tolist() == [[0, 0, 2, 2, 1, 1]]
    nearest = segment_scores({"scores": scores}, SegmentOptions(resize="classes"), placed)
    assert nearest.classes.tolist() == [[0, 0, 0, 1, 1, 1]]


def test_layouts_and_text() -> None:
    scores = np.zeros((1, 2, 2, 4), np.float32)
    scores[0, 1, :, 3] = 1
    for layout, output in (("NCHW", scores), ("NHWC", scores.transpose(0, 2, 3, 1))):
        found = segment_scores({"scores": output}, SegmentOptions(layout=layout), WHOLE, LABELS)
        assert found.classes.tolist() == [[0, 0, 0, 1], [0, 0, 0, 1]]
        assert found.classes.dtype == np.uint8
    assert str(found) == "sky    75.0%\nroad   25.0%"
    assert found.as_json() == {
        "width": 4,
        "height": 2,
        "classes": [
            {"index": 0, "label": "sky", "share": 0.75},
            {"index": 1, "label": "road", "share": 0.25},
        ],
    }
    assert found.mask(1).sum() == 2


@pytest.mark.parametrize("shape", [(1, 2, 4), (1, 1, 2, 4), (1, 2, 4, 1), (2, 4)])
def test_class_maps(shape: tuple[int, ...]) -> None:
    numbers = np.array([[0, 0, 300, 7], [0, 0, 300, 7]])
    found = segment_classes({"classes": numbers.reshape(shape)}, NoOptions(), WHOLE, LABELS)
    np.testing.assert_array_equal(found.classes, numbers)
    assert list(found.shares()) == [0, 7, 300]


def test_masks_of_one_thing() -> None:
    logits = np.array([[[[-3, -0.5, 0.5, 3]] * 2]], np.float32)
    found = segment_binary({"scores": logits}, BinaryOptions(logits=True), WHOLE, LABELS)
    assert found.classes.tolist() == [[0, 0, 1, 1]] * 2
    probabilities = 1 / (1 + np.exp(-logits))
    same = segment_binary({"scores": probabilities.transpose(0, 2, 3, 1)}, BinaryOptions(), WHOLE)
    np.testing.assert_array_equal(same.classes, found.classes)
    sure = segment_binary({"scores": probabilities}, BinaryOptions(threshold=0.9), WHOLE)
    assert sure.classes.tolist() == [[0, 0, 0, 1]] * 2


def test_outputs_and_options_that_do_not_fit() -> None:
    with pytest.raises(EngineError) as error:
        segment_classes({"classes": np.zeros((1, 3, 2, 4))}, NoOptions(), WHOLE)
    assert str(error.value) == "a class map has one plane, but the output is [1, 3, 2, 4]"
    with pytest.raises(EngineError) as error:
        segment_classes({"classes": np.full((1, 2, 4), -1)}, NoOptions(), WHOLE)
    assert str(error.value) == "a class map has numbers from 0, but the output has -1"
    with pytest.raises(EngineError) as error:
        segment_binary({"scores": np.zeros((1, 3, 2, 4))}, BinaryOptions(), WHOLE)
    assert str(error.value) == "a mask has one plane, but the output is [1, 3, 2, 4]"
    with pytest.raises(ValueError, match="layout is 'HWC'; it must be one of NCHW, NHWC"):
        SegmentOptions(layout="HWC")
    with pytest.raises(ValueError, match="resize is 'no'; it must be one of scores, classes"):
        SegmentOptions(resize="no")
