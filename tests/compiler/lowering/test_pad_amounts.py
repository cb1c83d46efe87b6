"""A decoded Pad gives what numpy's pad gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.compiler.lowering.pad_amounts import PadPart, pad_amounts, pad_parts
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array
from tests.compiler.lowering.node_inputs import computed, constant, held, reference


def taken(line: Array, part: PadPart) -> Array:
    some = line[part.begin : part.begin + part.count]
    return np.tile(some[::-1] if part.is_reversed else some, part.times)


@given(st.sampled_from(["reflect", "edge", "wrap"]), st.integers(2, 6), st.data())
def test_parts_are_what_numpy_repeats(mode: str, size: int, data: st.DataObject) -> None:
    most = size - 1 if mode == "reflect" else size
    before, after = (data.draw(st.integers(0, most)) for _ in range(2))
    line = np.arange(size) + 10
    front, back = pad_parts(mode, size, before, after)
    got = np.concatenate([taken(line, front), line, taken(line, back)])
    np.testing.assert_array_equal(got, np.pad(line, (before, after), mode=mode))  # type: ignore[call-overload]


@given(st.lists(st.integers(-2, 3), min_size=4, max_size=4))
def test_negative_pads_take_away_and_positive_ones_add(pads: list[int]) -> None:
    data = np.arange(20, dtype=np.float32).reshape(4, 5) + 1
    amounts = pad_amounts(data.shape, constant(*pads))
    kept = data[tuple(slice(at, at + n) for at, n in zip(amounts.begin, amounts.shape, strict=True))]
    got = np.pad(kept, amounts.added)
    assert got.shape == amounts.out_shape
    assert amounts.adds == any(pad > 0 for pad in pads)
    rows = slice(max(-pads[0], 0), 4 + min(pads[2], 0)), slice(max(-pads[1], 0), 5 + min(pads[3], 0))
    np.testing.assert_array_equal(kept, data[rows])


@given(st.lists(st.integers(0, 3), min_size=4, max_size=4), st.permutations([-3, -1]))
def test_axes_as_in_the_reference(pads: list[int], axes: list[int]) -> None:
    data = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    given_pads, given_axes = np.array(pads, np.int64), np.array(axes, np.int64)
    amounts = pad_amounts(data.shape, held(given_pads), held(given_axes))
    wanted = reference("Pad", data, given_pads, None, given_axes)
    np.testing.assert_array_equal(np.pad(data, amounts.added), wanted)


@pytest.mark.parametrize(
    ("mode", "pads", "why"),
    [
        ("reflect", (3, 0), "mode reflect adds (3, 0) to an axis of 3, which has fewer elements to repeat"),
        ("wrap", (0, 4), "mode wrap adds (0, 4) to an axis of 3, which has fewer elements to repeat"),
        ("mirror", (0, 1), "mode 'mirror' is not one of constant, reflect, edge, wrap"),
    ],
)
def test_refusals(mode: str, pads: tuple[int, int], why: str) -> None:
    with pytest.raises(Inexpressible) as caught:
        pad_amounts((3,), constant(*pads), mode=mode)
    assert caught.value.reason == why


def test_near_misses_are_taken() -> None:
    assert pad_amounts((3,), constant(2, 2), mode="reflect").added == ((2, 2),)
    assert pad_amounts((3,), constant(3, 3), mode="wrap").added == ((3, 3),)
    assert pad_amounts((3,), constant(9, 9), mode="edge").added == ((9, 9),)
    assert pad_amounts((1,), constant(0, 0), mode="reflect").added == ((0, 0),)


def test_computed_inputs_are_refused() -> None:
    with pytest.raises(Inexpressible, match="the model computes its pads"):
        pad_amounts((3,), computed(2))
    with pytest.raises(Inexpressible, match="the model computes its axes"):
        pad_amounts((3,), constant(0, 0), computed(1))
