"""Decoded parameters of activations and normalizations mean what ONNX's reference computes."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.compiler.lowering.activation_parameters import (
    FLOAT32_MAX,
    batch_norm_factors,
    clip_bounds,
    refuse_random_dropout,
    scalar_exponent,
    slope_along,
)
from edgekit.diagnostics import Inexpressible
from tests.compiler.lowering.node_inputs import Given, computed, constant, held, reference

RNG = np.random.default_rng(5)
INF = float("inf")


def scalar(number: float) -> Given:
    return held(np.array(number, np.float32))


def test_bounds_of_clip() -> None:
    assert clip_bounds(scalar(-1), scalar(6)) == (-1.0, 6.0)
    assert clip_bounds(None, scalar(6)) == (-INF, 6.0)
    assert clip_bounds(computed(), None) == (None, INF)


def test_ends_beyond_float32_are_infinite() -> None:
    assert clip_bounds(scalar(-FLOAT32_MAX), scalar(FLOAT32_MAX)).ends == (-INF, INF)
    assert clip_bounds(scalar(0), None).ends == (0.0, INF)
    assert clip_bounds(computed(), scalar(1)).ends is None


@pytest.mark.parametrize(
    ("shape", "axis", "found"),
    [
        ((3, 1, 1), 1, True),
        ((1,), 1, True),
        ((), 3, True),
        ((5,), 3, True),
        ((5,), 1, False),
        ((3, 1, 5), 1, False),
    ],
)
def test_a_slope_along_one_axis(shape: tuple[int, ...], axis: int, found: bool) -> None:
    data = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)
    slope = np.asarray(RNG.uniform(0, 1, shape), np.float32)
    made = slope_along(held(slope), data.shape, axis)
    assert (made is not None) == found
    if made is not None:
        assert made.shape == (data.shape[axis],)
        spread = made.reshape(tuple(-1 if a == axis else 1 for a in range(4)))
        np.testing.assert_array_equal(
            np.where(data < 0, data * spread, data), reference("PRelu", data, slope)
        )


def test_no_slope_of_what_the_model_computes() -> None:
    assert slope_along(computed(3, 1, 1), (2, 3, 4, 5), 1) is None


def test_exponents() -> None:
    assert scalar_exponent(scalar(2), 0) == 2.0
    assert scalar_exponent(constant(0.5, dtype="float32"), 1) == 0.5
    assert scalar_exponent(constant(0.5, dtype="float32"), 0) is None, "the base is broadcast"
    assert scalar_exponent(constant(2, 3), 1) is None
    assert scalar_exponent(computed(), 1) is None


def test_batch_normalization() -> None:
    data = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)
    given = [np.asarray(RNG.uniform(0.5, 2, 3), np.float32) for _ in range(4)]
    scale, bias, mean, variance = (held(array) for array in given)
    made = batch_norm_factors(4, scale, bias, mean, variance, 1e-3)
    assert made is not None
    factor, offset = made
    assert factor.shape == offset.shape == (3, 1, 1)
    wanted = reference("BatchNormalization", data, *given, epsilon=1e-3)
    np.testing.assert_allclose(data * factor + offset, wanted, rtol=1e-4, atol=1e-5)


def test_batch_normalization_by_computed_statistics() -> None:
    one = constant(1, dtype="float32")
    assert batch_norm_factors(4, one, one, computed(1), one, 1e-5) is None


def test_dropout_in_training_is_refused() -> None:
    refuse_random_dropout(None)
    refuse_random_dropout(held(np.array(False)))
    for training in (held(np.array(True)), computed()):
        with pytest.raises(
            Inexpressible,
            match="training_mode is on or unknown, so its output is random; export the model for inference",
        ):
            refuse_random_dropout(training)
