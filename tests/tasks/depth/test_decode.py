"""Depth made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.processing.predictions.depth import DepthMap
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.tasks.depth.decode import DECODERS, DepthOptions

VALUES = np.array([[1000, 2000], [3000, 5000]], np.float32)
WHOLE = ImagePlacement(2, 2, 2, 2)


@pytest.mark.parametrize("shape", [(1, 2, 2), (1, 1, 2, 2), (1, 2, 2, 1)])
def test_metres(shape: tuple[int, ...]) -> None:
    options = DepthOptions(scale=0.001, offset=0.5)
    found = DECODERS["metric"].function({"depth": VALUES.reshape(shape)}, options, WHOLE, ())
    assert isinstance(found, DepthMap)
    np.testing.assert_allclose(found.values, [[1.5, 2.5], [3.5, 5.5]])
    assert str(found) == "nearest   1.5 m at 0,0\nfarthest  5.5 m at 1,1\nmedian    3 m"
    assert found.as_json() == {
        "width": 2,
        "height": 2,
        "kind": "metric",
        "nearest": {"value": 1.5, "x": 0, "y": 0},
        "farthest": {"value": 5.5, "x": 1, "y": 1},
        "median": 3.0,
    }
    assert found.picture().tolist() == [[255, 191], [128, 0]] or found.picture()[0, 0] == 255


def test_inverse_depth_is_near_where_it_is_large() -> None:
    found = DECODERS["inverse"].function({"depth": VALUES[None]}, DepthOptions(), WHOLE, ())
    assert str(found).splitlines()[0] == "nearest   5e+03 at 1,1"
    assert isinstance(found, DepthMap)
    picture = DepthMap(found.values, "inverse").picture()
    assert (picture[1, 1], picture[0, 0]) == (255, 0)
    assert DepthMap(found.values, "relative").picture()[0, 0] == 255


def test_the_models_own_size_is_without_the_padding() -> None:
    depth = np.arange(16, dtype=np.float32).reshape(1, 4, 4)
    placed = ImagePlacement(80, 40, 8, 8, 0.1, 0.1)  # the lower half is padding
    found = DECODERS["relative"].function({"depth": depth}, DepthOptions(size="model"), placed, ())
    assert isinstance(found, DepthMap)
    np.testing.assert_array_equal(found.values, depth[0, :2])
    whole = DECODERS["relative"].function({"depth": depth}, DepthOptions(), placed, ())
    assert isinstance(whole, DepthMap)
    assert whole.values.shape == (40, 80)
    assert whole.values.max() == 7  # nothing of the padding


def test_what_is_no_scale() -> None:
    with pytest.raises(ValueError, match="scale is 0; it must be above 0"):
        DepthOptions(scale=0.0)
