"""Forms of Pad and Resize that kernels may lack."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.compiler.passes.write_out_pad import write_out_pad
from edgekit.compiler.passes.write_out_resize import write_out_resize
from tests.compiler.passes.meaning import Array, answers, assert_same, folded, ops

pytestmark = pytest.mark.needs_ort


@pytest.mark.parametrize(
    ("text", "pads", "left"),
    [
        (
            "g (float[3,4] x, float v) => (float[6,6] y) { y = Pad (x, pads, v) }",
            [1, 0, 2, 2],
            ["Pad", "Where"],
        ),
        (
            "g (float[3,4] x, float v) => (float[5,3] y) { y = Pad (x, pads, v) }",
            [2, -1, 0, 0],
            ["Pad", "Where"],
        ),
        (
            """g (float[3,4] x) => (float[6,6] y) { y = Pad <mode="wrap"> (x, pads) }""",
            [1, 0, 2, 2],
            ["Gather", "Gather", "Identity"],
        ),
    ],
)
def test_a_pad_means_the_same(text: str, pads: list[int], left: list[str]) -> None:
    model = folded(text, pads=np.array(pads))
    want = answers(model)
    assert write_out_pad(model, lambda node: True)
    assert ops(model) == left
    assert_same(want, model, np.inf)


def test_what_kernels_have_stays() -> None:
    model = folded("g (float[3,4] x) => (float[6,6] y) { y = Pad (x, pads) }", pads=np.array([1, 0, 2, 2]))
    assert not write_out_pad(model, lambda node: True)
    assert ops(model) == ["Pad"]


SIZES = np.array([1, 2, 4, 7])


@pytest.mark.parametrize(
    ("attributes", "left"),
    [
        ('mode="linear", antialias=1', ["MatMul", "MatMul", "Identity"]),
        ('mode="cubic", antialias=1', ["MatMul", "MatMul", "Identity"]),
        ('mode="cubic", exclude_outside=1', ["MatMul", "MatMul", "Identity"]),
        ('mode="nearest"', ["Gather", "Gather", "Identity"]),
        (
            'mode="linear", coordinate_transformation_mode="half_pixel_symmetric"',
            ["MatMul", "MatMul", "Identity"],
        ),
    ],
)
def test_a_resize_means_the_same(attributes: str, left: list[str]) -> None:
    model = folded(
        f"g (float[1,2,8,10] x) => (float[1,2,4,7] y) {{ y = Resize <{attributes}> (x, , , sizes) }}",
        sizes=SIZES,
    )
    want = answers(model)
    assert write_out_resize(model, lambda node: True)
    assert ops(model) == left
    assert_same(want, model)


@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_what_is_beyond_the_image_is_the_extrapolation_value(mode: str) -> None:
    roi: Array = np.array([0, 0, 0.4, -0.2, 1, 1, 1.3, 0.7], np.float32)
    model = folded(
        f"""g (float[1,2,8,10] x) => (float[1,2,4,7] y) {{ y = Resize <mode="{mode}",
        coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=10.0> (x, roi, , sizes) }}""",
        sizes=SIZES,
        roi=roi,
    )
    want = answers(model)
    assert write_out_resize(model, lambda node: True)
    assert "Resize" not in ops(model)
    assert (want[0]["y"] == 10).any()
    assert_same(want, model)


def test_any_axis_is_resized() -> None:
    model = folded(
        """g (float[1,5,6,3] x) => (float[1,8,9,3] y) { y = Resize <mode="linear"> (x, , , sizes) }""",
        sizes=np.array([1, 8, 9, 3]),
    )
    want = answers(model)
    assert write_out_resize(model, lambda node: True)
    assert ops(model) == ["Transpose", "MatMul", "Transpose", "MatMul", "Identity"]
    assert_same(want, model)


def test_what_is_not_wanted_stays() -> None:
    model = folded(
        """g (float[1,2,8,10] x) => (float[1,2,4,7] y) { y = Resize (x, , , sizes) }""", sizes=SIZES
    )
    assert not write_out_resize(model, lambda node: False)
    assert ops(model) == ["Resize"]
