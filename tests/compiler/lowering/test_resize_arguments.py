"""Decoded Resize: where outputs come from, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.compiler.lowering.resize_arguments import repetition, resized_axes
from edgekit.compiler.model.resize_matrix import ResizeAxis
from edgekit.diagnostics import Inexpressible
from tests.compiler.lowering.node_inputs import Given, computed, constant, held, reference

DATA = np.random.default_rng(0).standard_normal((1, 2, 4, 6)).astype(np.float32)


def decoded(
    out: tuple[int, ...],
    *,
    roi: Given | None = None,
    scales: Given | None = None,
    sizes: Given | None = None,
    axes: list[int] | None = None,
    mode: str = "linear",
    transformation: str = "half_pixel",
    policy: str = "stretch",
) -> list[ResizeAxis]:
    return resized_axes(
        DATA.shape, out, roi, scales, sizes, axes=axes, coordinate_transformation_mode=transformation,
        keep_aspect_ratio_policy=policy, mode=mode,
    )  # fmt: skip


@pytest.mark.parametrize("transformation", ["half_pixel", "align_corners", "asymmetric"])
@pytest.mark.parametrize("axes", [None, [2, 3], [3, 2]])
def test_matrices_give_what_the_reference_gives(transformation: str, axes: list[int] | None) -> None:
    scales = {2: 2.0, 3: 1.5}
    numbers = np.array([scales.get(axis, 1.0) for axis in axes or range(4)], np.float32)
    options: dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": transformation}
    wanted = reference("Resize", DATA, None, numbers, **options, **({"axes": axes} if axes else {}))
    lines = decoded(wanted.shape, scales=held(numbers), axes=axes, transformation=transformation)
    assert [line.is_identity for line in lines] == [True, True, False, False]
    got = DATA
    for axis in (2, 3):
        got = np.moveaxis(
            np.moveaxis(got, axis, -1) @ lines[axis].matrix("linear", 0, False, False, 0).T, -1, axis
        )
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_the_policy_takes_one_factor_for_all_axes() -> None:
    lines = decoded((1, 2, 8, 12), sizes=constant(8, 18), axes=[2, 3], policy="not_larger")
    assert [line.factor for line in lines] == [1, 1, 2, 2]


def test_scales_without_an_element_need_not_be_constant() -> None:
    assert decoded((1, 2, 8, 12), scales=computed(0), sizes=constant(1, 2, 8, 12))[3].out == 12


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"scales": computed(4)}, "the model computes its scales; they must be constant"),
        ({"sizes": computed(4)}, "the model computes its sizes; they must be constant"),
        ({"transformation": "tf_crop_and_resize"}, "the model computes its roi; it must be constant"),
        ({"mode": "area"}, "mode 'area' is not one of nearest, linear, cubic"),
        ({"transformation": "middle"}, "coordinate_transformation_mode 'middle' is not supported"),
    ],
)
def test_refusals(given: dict[str, Any], why: str) -> None:
    with pytest.raises(Inexpressible) as caught:
        decoded((1, 2, 8, 12), **given)
    assert caught.value.reason == why


@given(st.integers(1, 6), st.integers(1, 5))
def test_repetition(size: int, times: int) -> None:
    indices = np.repeat(np.arange(size), times)
    assert repetition(indices, size) == times
    if size > 1:
        assert repetition(indices[:-1], size) is None
        assert repetition(indices[::-1], size) is None
