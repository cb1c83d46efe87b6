"""Masks as text, and as COCO's RLE."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.processing.predictions.segment_instances import Instances, rle_counts, rle_text


def test_instances_read_as_text_and_json() -> None:
    crop = np.array([[True, False], [True, True]])
    found = Instances(
        np.array([[1, 2, 3, 4]], np.float32),
        np.array([0.5], np.float32),
        np.array([1]),
        [crop],
        np.array([[1, 2]]),
        6,
        5,
        ["cat", "dog"],
    )
    assert str(found) == "dog  0.500  1,2 to 3,4  3 pixels"
    assert found.mask(0).sum() == 3
    assert np.argwhere(found.mask(0)).tolist() == [[2, 1], [3, 1], [3, 2]]
    assert found.as_json() == [
        {
            "index": 1,
            "label": "dog",
            "score": 0.5,
            "box": [1.0, 2.0, 3.0, 4.0],
            "area": 3,
            "mask": {"size": [5, 6], "counts": rle_text([7, 2, 4, 1, 16])},
        }
    ]


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 90), st.integers(1, 90), st.integers(0, 1000), st.sampled_from([0.0, 0.01, 0.5, 0.99, 1.0])
)
def test_rle_is_pycocotools(height: int, width: int, seed: int, share: float) -> None:
    mask = pytest.importorskip("pycocotools.mask")
    made = np.random.default_rng(seed).random((height, width)) < share
    text = rle_text(rle_counts(made)).encode()
    assert text == mask.encode(np.asfortranarray(made.astype(np.uint8)))["counts"]
    np.testing.assert_array_equal(mask.decode({"size": [height, width], "counts": text}), made)
