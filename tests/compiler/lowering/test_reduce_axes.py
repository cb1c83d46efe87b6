"""The axes of reductions are those that ONNX's reference reduces."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.compiler.lowering.reduce_axes import axes_from, reduced_axes
from edgekit.diagnostics import Inexpressible
from tests.compiler.lowering.node_inputs import computed, constant, reference


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
