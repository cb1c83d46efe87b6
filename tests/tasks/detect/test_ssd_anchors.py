"""SSD's anchors and boxes relative to them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from edgekit.errors import EngineError
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.tasks.detect.anchors import AnchorOptions, anchors_for
from edgekit.tasks.detect.ssd_anchors import SsdAnchorsOptions, detect_ssd_anchors

WHOLE = ImagePlacement(300, 300, 300, 300)


def test_mobilenet_ssd_has_1917_anchors() -> None:
    """TensorFlow's at 300: grids of 19, 10, 5, 3, 2 and 1; 3 anchors a cell in the first, 6 in others."""
    anchors = anchors_for(AnchorOptions(), 300, 300)
    assert len(anchors) == 19 * 19 * 3 + (100 + 25 + 9 + 4 + 1) * 6 == 1917
    half = 0.5 / 19
    root = math.sqrt(2)
    first = [
        [half, half, 0.1, 0.1],
        [half, half, 0.2 * root, 0.2 / root],
        [half, half, 0.2 / root, 0.2 * root],
    ]
    np.testing.assert_allclose(anchors[:3], first, rtol=1e-6)
    # The last layer: scale 0.95, and the one more anchor's is the mean of it and 1.
    np.testing.assert_allclose(anchors[-6], [0.5, 0.5, 0.95, 0.95], rtol=1e-6)
    np.testing.assert_allclose(anchors[-1], [0.5, 0.5, math.sqrt(0.95), math.sqrt(0.95)], rtol=1e-6)
    second = 0.2 + 0.75 / 5
    np.testing.assert_allclose(anchors[1083 + 1], [0.05, 0.05, second * root, second / root], rtol=1e-6)


def test_layers_of_one_stride_share_their_cells() -> None:
    options = AnchorOptions(
        strides=(8, 16, 16), aspect_ratios=(1.0,), interpolated_ratio=0.0, reduce_lowest=False
    )
    anchors = anchors_for(options, 32, 16)
    assert len(anchors) == 4 * 2 + 2 * 1 * 2
    np.testing.assert_allclose(anchors[8:10, :2], [[0.25, 0.5]] * 2)  # both anchors of the first cell
    np.testing.assert_allclose(anchors[8:10, 2], [0.575, 0.95])


@pytest.mark.parametrize("activation", ["sigmoid", "softmax", "none"])
def test_a_box_relative_to_its_anchor(activation: str) -> None:
    boxes = np.zeros((1, 1917, 4), np.float32)
    scores = np.zeros((1, 1917, 3), np.float32)
    scores[:] = 0 if activation == "none" else [9, -9, -9]
    row = {"sigmoid": [-9, 0, 2], "softmax": [0, 0, 9], "none": [0, 0.2, 0.9]}[activation]
    scores[0, -6] = np.array(row)
    boxes[0, -6] = [1, -1, 5 * math.log(0.5), 0]  # y, x, height, width
    options = SsdAnchorsOptions(activation=activation, first_class=1)
    found = detect_ssd_anchors({"boxes": boxes, "scores": scores}, options, WHOLE)
    centre_x, centre_y = 0.5 - 0.095, 0.5 + 0.095
    box = [centre_x - 0.475, centre_y - 0.2375, centre_x + 0.475, centre_y + 0.2375]
    np.testing.assert_allclose(found.boxes, np.clip([box], 0, 1) * 300, atol=1e-3)
    assert found.classes.tolist() == [2]
    expected = {"sigmoid": 1 / (1 + math.exp(-2)), "softmax": 1 / (1 + 2 * math.exp(-9)), "none": 0.9}
    assert found[0].score == pytest.approx(expected[activation])


def test_no_background() -> None:
    boxes, scores = np.zeros((1, 1917, 4), np.float32), np.full((1, 1917, 2), -9, np.float32)
    scores[0, 0, 0] = 9
    found = detect_ssd_anchors({"boxes": boxes, "scores": scores}, SsdAnchorsOptions(background=False), WHOLE)
    assert found.classes.tolist() == [0]
    assert len(detect_ssd_anchors({"boxes": boxes, "scores": scores}, SsdAnchorsOptions(), WHOLE)) == 0


def test_other_forms_are_refused() -> None:
    outputs = {"boxes": np.zeros((1, 1000, 4), np.float32), "scores": np.zeros((1, 1000, 1), np.float32)}
    with pytest.raises(EngineError) as error:
        detect_ssd_anchors(outputs, SsdAnchorsOptions(), WHOLE)
    assert str(error.value) == (
        "the output has 1000 boxes, but the card's anchors on an input of 300x300 are 1917; correct "
        "strides, aspect_ratios or interpolated_ratio in the card"
    )
    outputs = {"boxes": np.zeros((1, 1917, 4), np.float32), "scores": np.zeros((1, 1917, 1), np.float32)}
    with pytest.raises(EngineError) as error:
        detect_ssd_anchors(outputs, SsdAnchorsOptions(), WHOLE)
    assert str(error.value) == "`scores` has one column, which the card assigns to the background"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"aspect_ratios": ()}, "aspect_ratios is 0; it must be at least 1"),
        ({"aspect_ratios": (1.0, 0.0)}, "aspect_ratios has 0; it must be above 0"),
        ({"interpolated_ratio": -1.0}, "interpolated_ratio is -1; it must be at least 0"),
        ({"min_scale": 2.0}, "min_scale is 2; it must be from 0 to 1"),
        ({"scales": (10.0, 10.0)}, "scales is [10.0, 10.0]; it must be four numbers above 0"),
        ({"activation": "relu"}, "activation is 'relu'; it must be one of sigmoid, softmax, none"),
    ],
)
def test_options_out_of_bounds(options: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match="must") as error:
        SsdAnchorsOptions(**options)  # type: ignore[arg-type]
    assert str(error.value) == text
