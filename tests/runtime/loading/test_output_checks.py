"""NaN and infinities are refused unless the golden outputs hold them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
import pytest

from edgekit.errors import EngineError, NonFiniteOutputError
from edgekit.runtime.loading.output_checks import Golden, OutputChecks
from edgekit.tensor_spec import SQUARED_LIMIT, Array, TensorSpec, is_finite


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("size", [1, 7, SQUARED_LIMIT, SQUARED_LIMIT + 1])
@pytest.mark.parametrize("bad", [None, np.nan, np.inf, -np.inf])
def test_one_bad_value_anywhere_is_seen(dtype: type, size: int, bad: float | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for place in (0, size // 2, size - 1):
            values: Array = np.full((1, size), 1.0, dtype)
            if bad is not None:
                values[0, place] = bad
            assert is_finite(values) is (bad is None)


def test_squares_that_overflow_are_finite_all_the_same() -> None:
    assert is_finite(np.full((2, 3), 3e38, np.float32))
    assert is_finite(np.full((2, 3), 6e4, np.float16))
    assert not is_finite(np.array([3e38, np.inf, -np.inf], np.float32))
    assert is_finite(np.zeros((0, 4), np.float32))
    assert is_finite(np.zeros((), np.float32))


def outputs(y: float, z: float) -> dict[str, Array]:
    return {"y": np.array([1, y], np.float32), "z": np.array([z], np.float32), "n": np.array([3])}


OUTPUTS = [TensorSpec("y", "float32", (2,)), TensorSpec("z", "float32", (1,)), TensorSpec("n", "int64", (1,))]


def test_an_output_may_hold_the_kinds_of_its_golden_outputs_and_no_others() -> None:
    reads = []

    def golden() -> Golden:
        reads.append(1)
        feeds: Mapping[str, Array] = {}
        return [(feeds, outputs(2, 1)), (feeds, outputs(2, -np.inf))]

    checks = OutputChecks(OUTPUTS, golden)
    checks.check(outputs(5, 6))
    assert not reads  # the golden vectors are read at the first non-finite value, not before
    checks.check(outputs(5, -np.inf))
    checks.check(outputs(5, 6))
    assert reads == [1]
    for value, kind in ((np.inf, r"\+inf"), (np.nan, "nothing but NaN")):
        with pytest.raises(EngineError, match=rf"^output z contains {kind}, but its golden outputs -inf, so"):
            checks.check(outputs(5, value))
    with pytest.raises(EngineError, match=r"^1 of 2 values of output y are NaN or infinite; the input"):
        checks.check(outputs(np.nan, 0))


def test_a_model_that_outputs_nan_may_output_infinities_but_not_nan_alone() -> None:
    """A log: NaN below zero in the golden vectors, -inf at zero in a request."""
    z = TensorSpec("z", "float32", (2,))
    checks = OutputChecks([z], [({}, {"z": np.array([np.nan, 1], np.float32)})])
    for values in ([-np.inf, 0], [np.nan, np.inf], [np.nan, 2]):
        checks.check({"z": np.array(values, np.float32)})
    with pytest.raises(EngineError, match=r"^output z contains nothing but NaN"):
        checks.check({"z": np.array([np.nan, np.nan], np.float32)})


def test_outputs_are_those_of_the_model_and_no_more() -> None:
    checks = OutputChecks(OUTPUTS, [])
    checks.check(outputs(1, 2))
    with pytest.raises(EngineError):
        checks.check({**outputs(1, 2), "x": np.zeros(1, np.float32)})
    for name in ("y", "z", "n"):
        wrong = outputs(1, 2)
        with pytest.raises(EngineError):
            checks.check({**wrong, name: wrong[name].astype(np.float64)})
        with pytest.raises(EngineError):
            checks.check({**wrong, name: np.zeros(7, wrong[name].dtype)})


def test_an_output_has_as_many_rows_as_the_data_give_and_no_other_shape() -> None:
    check = OutputChecks([TensorSpec("y", "int64", (-1, 3))], []).check
    for rows in (0, 1, 70):
        check({"y": np.zeros((rows, 3), np.int64)})
    for wrong in (np.zeros((2, 4), np.int64), np.zeros(3, np.int64), np.zeros((2, 3), np.int32)):
        with pytest.raises(EngineError):
            check({"y": wrong})


def test_values_that_are_not_finite_have_an_error_of_their_own() -> None:
    known: list[Golden] = [[], [({}, outputs(2, -np.inf))]]
    for golden in known:
        with pytest.raises(NonFiniteOutputError):
            OutputChecks(OUTPUTS, golden).check(outputs(0, np.nan))
    with pytest.raises(EngineError) as wrong:
        OutputChecks(OUTPUTS, []).check({})
    assert type(wrong.value) is EngineError
