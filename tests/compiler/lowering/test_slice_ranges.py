"""A decoded Slice takes the elements that ONNX's reference takes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.compiler.lowering.slice_ranges import slice_objects, slice_ranges
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array
from tests.compiler.lowering.node_inputs import computed, constant, held, reference

INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)
bounds = st.one_of(st.integers(-8, 8), st.sampled_from([INT64_MAX, INT64_MIN, 2**31 - 1, -(2**31)]))
steps = st.integers(-4, 4).filter(bool)


@st.composite
def slices(draw: st.DrawFn) -> tuple[Array, list[int], list[int], list[int], list[int]]:
    shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    rank = len(shape)
    axes = draw(st.lists(st.integers(-rank, rank - 1), unique_by=lambda axis: axis % rank, min_size=1))
    starts, ends, by = (
        draw(st.lists(numbers, min_size=len(axes), max_size=len(axes))) for numbers in (bounds, bounds, steps)
    )
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape), starts, ends, axes, by


@given(slices())
def test_the_same_elements_as_the_reference(
    drawn: tuple[Array, list[int], list[int], list[int], list[int]],
) -> None:
    data, *rest = drawn
    inputs = [np.array(numbers, np.int64) for numbers in rest]
    taken = slice_ranges(data.shape, *(held(array) for array in inputs))
    wanted = reference("Slice", data, *inputs)
    assert taken.shape == wanted.shape
    if wanted.size:
        got = data[slice_objects(taken.begin, taken.step, taken.shape)]
        np.testing.assert_array_equal(np.flip(got, taken.reversed_axes), wanted)


def test_axes_and_steps_that_are_left_out() -> None:
    taken = slice_ranges((5, 6), constant(1, -2), constant(3, INT64_MAX))
    assert taken == ((1, 4), (1, 1), (2, 2), ())


def test_an_axis_of_which_nothing_is_taken() -> None:
    assert slice_ranges((5,), constant(3), constant(3)).shape == (0,)


@pytest.mark.parametrize("name", ["starts", "ends", "axes", "steps"])
def test_computed_inputs_are_refused(name: str) -> None:
    inputs = {each: constant(1) for each in ("starts", "ends", "axes", "steps")} | {name: computed(1)}
    with pytest.raises(Inexpressible) as caught:
        slice_ranges((3, 3), **inputs)
    assert caught.value.why == f"the model computes its {name}; they must be constant"
