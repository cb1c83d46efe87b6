"""Decoded Gather, OneHot and Trilu select what ONNX's reference selects."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.compiler.lowering.index_arguments import (
    axes_from,
    constant_ints,
    constant_scalar,
    gathered_range,
    gathered_shape,
    has_repeats,
    non_negative,
    one_hot_arguments,
    reduced_axes,
    refuse_repeats,
    slice_objects,
    slice_ranges,
    trilu_mask,
)
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array
from tests.compiler.lowering.node_inputs import computed, constant, held, reference

DATA = np.arange(60, dtype=np.float32).reshape(3, 4, 5)


@given(st.lists(st.integers(-4, 3), min_size=1, max_size=6), st.booleans())
def test_gather(numbers: list[int], as_column: bool) -> None:
    indices = np.array(numbers, np.int64).reshape((-1, 1) if as_column else (-1,))
    at = non_negative(indices, 4)
    assert at.dtype == np.int32
    wanted = reference("Gather", DATA, indices, axis=1)
    shape = gathered_shape(DATA.shape, indices.shape, 1)
    assert shape == wanted.shape
    taken = gathered_range(DATA.shape, at, 1)
    follows = all(right == left + 1 for left, right in zip(at.ravel(), at.ravel()[1:], strict=False))
    assert (taken is not None) == follows
    if taken is not None:
        cut = tuple(slice(begin, begin + n) for begin, n in zip(taken.begin, taken.shape, strict=True))
        np.testing.assert_array_equal(DATA[cut].reshape(shape), wanted)
    np.testing.assert_array_equal(np.take(DATA, at, 1), wanted)


def test_no_range_of_computed_or_of_no_indices() -> None:
    assert gathered_range((3,), None, 0) is None
    assert gathered_range((3,), np.zeros(0, np.int32), 0) is None


def test_sizes_of_index_tuples_broadcast() -> None:
    at = non_negative(np.array([[-1, -1], [0, 2]]), np.array([3, 4], np.int32))
    assert at.tolist() == [[2, 3], [0, 2]]


@pytest.mark.parametrize(("rows", "repeats"), [([[0, 1], [1, 0]], False), ([[0, 1], [1, 1], [0, 1]], True)])
def test_repeated_elements(rows: list[list[int]], repeats: bool) -> None:
    indices = np.array(rows)
    assert has_repeats(indices) == repeats
    refuse_repeats(indices, "add")
    refuse_repeats(None, "none")
    if not repeats:
        refuse_repeats(indices, "none")
        return
    with pytest.raises(Inexpressible) as caught:
        refuse_repeats(indices, "none")
    assert caught.value.reason == "its indices contain an element twice, so the result is undefined"


@pytest.mark.parametrize("axis", [-1, 0, 1, -3])
def test_one_hot(axis: int) -> None:
    indices, values = np.array([[0, 2, -1], [3, 1, 1]]), np.array([0.5, 2], np.float32)
    made = one_hot_arguments(indices.shape, constant(4), held(values), axis)
    hit = non_negative(indices, made.depth).reshape(made.indices_shape) == made.classes
    wanted = reference("OneHot", indices, np.array(4), values, axis=axis)
    np.testing.assert_array_equal(np.where(hit, made.on, made.off), wanted)


def test_one_hot_of_computed_values_is_refused() -> None:
    for depth, values in ((computed(), constant(0, 1)), (constant(3), computed(2))):
        with pytest.raises(
            Inexpressible, match="the model computes its depth or values; they must be constant"
        ):
            one_hot_arguments((2,), depth, values, -1)


@given(st.integers(1, 5), st.integers(1, 5), st.integers(-6, 6), st.integers(0, 1))
def test_trilu(rows: int, columns: int, k: int, upper: int) -> None:
    data = np.arange(2 * rows * columns, dtype=np.float32).reshape(2, rows, columns) + 1
    got = np.where(trilu_mask(data.shape, held(np.array(k)), upper), data, 0)
    np.testing.assert_array_equal(got, reference("Trilu", data, np.array(k), upper=upper))


def test_trilu_without_k_keeps_the_diagonal() -> None:
    assert trilu_mask((2, 2), None, 1).tolist() == [[True, True], [False, True]]
    for far, kept in ((-(2**63), True), (2**63 - 1, False)):  # past the matrix, and past what numpy counts to
        assert trilu_mask((2, 3), held(np.array(far)), 1).tolist() == [[kept] * 3] * 2
        assert trilu_mask((2, 3), held(np.array(far)), 0).tolist() == [[not kept] * 3] * 2
    with pytest.raises(Inexpressible, match="the model computes its k"):
        trilu_mask((2, 2), computed(), 1)


def test_integers_of_rank_0_and_1() -> None:
    assert constant_ints(constant(1, -2), "axes") == (1, -2)
    assert constant_ints(held(np.array(3)), "axes") == (3,)
    assert constant_ints(constant(), "axes") == ()


def test_a_scalar_is_of_rank_0_or_1() -> None:
    assert constant_scalar(held(np.array(-1)), "k") == -1
    assert constant_scalar(constant(4), "k") == 4


def test_what_the_model_computes_is_refused_by_its_name() -> None:
    with pytest.raises(Inexpressible) as caught:
        constant_ints(computed(2), "pads")
    assert caught.value.reason == "the model computes its pads; they must be constant"
    with pytest.raises(Inexpressible) as caught:
        constant_scalar(computed(), "k")
    assert caught.value.reason == "the model computes its k; it must be constant"


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
    assert caught.value.reason == f"the model computes its {name}; they must be constant"


@given(st.lists(st.integers(-3, 2), max_size=3, unique_by=lambda axis: axis % 3), st.integers(0, 1))
def test_the_same_sums_as_the_reference(axes: list[int], noop: int) -> None:
    data = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    over = reduced_axes(3, constant(*axes), noop)
    wanted = reference("ReduceSum", data, np.array(axes, np.int64), noop_with_empty_axes=noop)
    got = data if over is None else data.sum(axis=over, keepdims=True)
    np.testing.assert_array_equal(got, wanted)


def test_axes_are_sorted_and_stand_once() -> None:
    assert reduced_axes(4, constant(-1, 0, 3), 0) == (0, 3)


def test_no_axes_are_all_axes() -> None:
    assert reduced_axes(3, None, 0) == (0, 1, 2)
    assert reduced_axes(3, None, 1) is None
    assert reduced_axes(0, None, 0) is None


def test_computed_axes_are_refused() -> None:
    with pytest.raises(Inexpressible, match="the model computes its axes"):
        reduced_axes(3, computed(1), 0)


@pytest.mark.parametrize(("axis", "expected"), [(-1, (2,)), (1, (1, 2)), (-3, (0, 1, 2))])
def test_axes_from(axis: int, expected: tuple[int, ...]) -> None:
    assert axes_from(axis, 3) == expected
