from __future__ import annotations

import numpy as np
import pytest

from edgekit.compiler.model.rewriting import array_of, text_of
from edgekit.compiler.passes.explicit_resize import explicit_resize
from tests.compiler.passes.meaning import model_of, rewritten

pytestmark = pytest.mark.needs_ort

INF = float("inf")
MODES = ["nearest", "linear", "cubic"]


def resize(attributes: str, out: str, inputs: str, source: str = "1,1,4,6") -> str:
    return f"g (float[{source}] x) => (float[{out}] y) {{ y = Resize <{attributes}> (x, , {inputs}) }}"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("policy", "sizes", "out", "scale"),
    [
        ("not_larger", [7, 8], "1,1,5,8", 4 / 3),
        ("not_smaller", [8, 8], "1,1,8,12", 2),
        ("not_larger", [2, 8], "1,1,2,3", 0.5),
    ],
)
def test_a_policy_becomes_scales(mode: str, policy: str, sizes: list[int], out: str, scale: float) -> None:
    attributes = f'mode="{mode}", axes=[2,3], keep_aspect_ratio_policy="{policy}"'
    model = model_of(resize(attributes, out, ", k"), k=np.array(sizes, np.int64))
    assert rewritten(model, explicit_resize, minimum_db=INF) == ["Resize"]
    scales = array_of(model.graph[0].inputs[2])
    assert scales is not None
    assert scales.tolist() == np.array([1, 1, scale, scale], np.float32).tolist()
    assert set(model.graph[0].attributes) == {"mode"}


@pytest.mark.parametrize(
    ("policy", "sizes", "out"),
    [("not_smaller", [7, 8], "1,1,7,11"), ("stretch", [7, 8], "1,1,7,8")],
    ids=["rounds_up", "stretches"],
)
def test_what_no_scale_says_stays(policy: str, sizes: list[int], out: str) -> None:
    """1.75 * 6 = 10.5 rounds to 11; given as a scale it would make 10."""
    attributes = f'mode="linear", axes=[2,3], keep_aspect_ratio_policy="{policy}"'
    model = model_of(resize(attributes, out, ", k"), k=np.array(sizes, np.int64))
    assert not explicit_resize(model)


SYMMETRIC = 'coordinate_transformation_mode="half_pixel_symmetric"'


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("scales", "out"),
    [([1, 1, 2, 3], "1,1,8,18"), ([1, 1, 0.5, 0.5], "1,1,2,3"), ([1, 1, 1.25, 1], "1,1,5,6")],
)
def test_symmetric_about_a_whole_number_is_half_pixel(mode: str, scales: list[float], out: str) -> None:
    model = model_of(resize(f'mode="{mode}", {SYMMETRIC}', out, "k"), k=scales)
    assert rewritten(model, explicit_resize) == ["Resize"]
    assert text_of(model.graph[0], "coordinate_transformation_mode", "") == "half_pixel"


@pytest.mark.parametrize("mode", MODES)
def test_symmetric_to_a_size(mode: str) -> None:
    text = resize(f'mode="{mode}", axes=[3,2], {SYMMETRIC}', "1,1,5,9", ", k")
    model = model_of(text, k=np.array([9, 5], np.int64))
    assert rewritten(model, explicit_resize) == ["Resize"]
    assert text_of(model.graph[0], "coordinate_transformation_mode", "") == "half_pixel"


def test_symmetric_scales_of_named_axes() -> None:
    text = resize(f'mode="linear", axes=[3], {SYMMETRIC}', "1,1,4,12", "k")
    assert rewritten(model_of(text, k=[2]), explicit_resize) == ["Resize"]
    near = resize(f'mode="linear", axes=[3], {SYMMETRIC}', "1,1,4,13", "k")
    assert not explicit_resize(model_of(near, k=[2.25]))


def test_symmetric_about_a_fraction_stays() -> None:
    """1.7 * 4 = 6.8 is cut to 6: the picture is shifted."""
    model = model_of(resize(f'mode="linear", {SYMMETRIC}', "1,1,6,6", "k"), k=[1, 1, 1.7, 1])
    assert not explicit_resize(model)


def test_other_modes_stay() -> None:
    text = resize('mode="linear", coordinate_transformation_mode="align_corners"', "1,1,8,12", "k")
    assert not explicit_resize(model_of(text, k=[1, 1, 2, 2]))
