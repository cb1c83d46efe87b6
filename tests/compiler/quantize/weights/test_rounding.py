"""Rounding: what is promised of scales, of the integers, and of the pairs that meet in a kernel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.compiler.quantize.weights.rounding import (
    DAMP,
    channel_scales,
    compensated,
    gptq,
    nearest,
    pairs_of,
    within_limit,
)
from edgekit.tensor_spec import Array

LIMIT = 128
SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 5), st.integers(1, 4))


def drawn(seed: int, groups: int, outputs: int, columns: int, observed: int = 40) -> tuple[Array, Array]:
    """Weights with a few large ones, and the Hessian of correlated inputs."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(0, 1, (groups, outputs, columns)) * np.exp(rng.normal(0, 1, (1, 1, columns)))
    mixed = rng.normal(0, 1, (groups, columns, columns)) @ rng.normal(0, 1, (groups, columns, observed))
    return weights, mixed @ mixed.swapaxes(1, 2)


def loss(weights: Array, stored: Array, scales: Array, hessian: Array) -> float:
    error = weights - stored * scales[..., None]
    return float(np.einsum("gok,gkl,gol->", error, hessian, error))


def broken(stored: Array, pairs: Array) -> int:
    one, other = stored[..., pairs[:, 0]].astype(int), stored[..., pairs[:, 1]].astype(int)
    positive = np.maximum(one, 0) + np.maximum(other, 0)
    negative = np.maximum(-one, 0) + np.maximum(-other, 0)
    return int((np.maximum(positive, negative) > LIMIT).sum())


def test_pairs_are_what_the_kernels_showed() -> None:
    """Columns = channel * kernel_size + place; measured with one output channel for each pair of columns."""
    assert pairs_of(4, 1).tolist() == [[0, 1], [2, 3]]
    # Three channels, two kernel_size: side by side (0, 2), (1, 3); in a row 0 2 | 4 1 | 3 5
    assert pairs_of(3, 2).tolist() == [[0, 2], [1, 3], [1, 4], [3, 5]]
    assert pairs_of(1, 3).tolist() == [[0, 1]]
    assert pairs_of(1, 1).tolist() == []


@given(SHAPES)
def test_each_column_is_in_at_most_two_pairs(shape: tuple[int, int, int, int]) -> None:
    pairs = pairs_of(shape[2], shape[3])
    counts = np.bincount(pairs.ravel(), minlength=1)
    assert counts.max() <= 2
    assert shape[2] % 2 or (counts == 1).all()


@given(st.integers(0, 10_000), SHAPES)
def test_scales_are_the_smallest_that_fit(seed: int, shape: tuple[int, int, int, int]) -> None:
    groups, outputs, channels, kernel_size = shape
    weights, _ = drawn(seed, groups, outputs, channels * kernel_size)
    pairs = pairs_of(channels, kernel_size)
    free, limited = channel_scales(weights), channel_scales(weights, pairs, LIMIT)
    np.testing.assert_allclose(free, np.abs(weights).max(2) / 127, rtol=1e-6)
    assert (limited >= free).all()
    assert (limited <= 2 * free).all()
    one, other = weights[..., pairs[:, 0]], weights[..., pairs[:, 1]]
    sums = np.where(one * other > 0, np.abs(one + other), 0) / limited[..., None]
    tight = np.maximum(sums.max(2, initial=0) / LIMIT, np.abs(weights).max(2) / limited / 127)
    np.testing.assert_allclose(tight, 1, rtol=1e-6)


def test_a_channel_of_zeros_has_a_scale() -> None:
    weights = np.array([[[0.0, 0.0], [1.27, -0.5]]])
    assert channel_scales(weights).tolist() == [[np.float32(0.01)] * 2]
    assert channel_scales(np.zeros((1, 2, 3))).tolist() == [[1, 1]]
    assert nearest(weights, channel_scales(weights)).tolist() == [[[0, 0], [127, -50]]]


@pytest.mark.parametrize("method", ["nearest", "gptq"])
@given(st.integers(0, 10_000), SHAPES, st.sampled_from([1.0, 0.5]))
def test_no_pair_is_over_the_limit(
    method: str, seed: int, shape: tuple[int, int, int, int], tight: float
) -> None:
    groups, outputs, channels, kernel_size = shape
    weights, hessian = drawn(seed, groups, outputs, channels * kernel_size)
    pairs = pairs_of(channels, kernel_size)
    scales = channel_scales(weights, pairs, LIMIT) * tight  # too tight: many must be clipped
    stored = (
        nearest(weights, scales, pairs, LIMIT)
        if method == "nearest"
        else gptq(weights, scales, hessian, pairs, LIMIT)
    )
    assert stored.dtype == np.int8
    assert np.abs(stored.astype(int)).max() <= 127
    assert broken(stored, pairs) == 0
    if method == "gptq":
        assert (within_limit(stored, pairs, LIMIT) == stored).all()


def test_what_is_over_the_limit_is_given_up_once() -> None:
    stored = np.array([[[127, 3, 100, -127, 5, -100]]], np.int16)
    pairs = np.array([[0, 2], [3, 5], [1, 4]])
    assert within_limit(stored, pairs, LIMIT).tolist() == [[[28, 3, 100, -28, 5, -100]]]


@given(st.integers(0, 10_000), SHAPES)
def test_gptq_of_uncorrelated_inputs_is_nearest(seed: int, shape: tuple[int, int, int, int]) -> None:
    groups, outputs, channels, kernel_size = shape
    weights, _ = drawn(seed, groups, outputs, channels * kernel_size)
    scales = channel_scales(weights)
    eye = np.broadcast_to(
        np.eye(channels * kernel_size), (groups, channels * kernel_size, channels * kernel_size)
    )
    assert (gptq(weights, scales, eye) == nearest(weights, scales)).all()


@pytest.mark.parametrize(("groups", "outputs", "columns"), [(1, 16, 150), (12, 1, 9), (4, 3, 18)])
def test_gptq_beats_nearest_on_correlated_inputs(groups: int, outputs: int, columns: int) -> None:
    weights, hessian = drawn(3, groups, outputs, columns, observed=8)
    scales = channel_scales(weights)
    better = loss(weights, gptq(weights, scales, hessian), scales, hessian)
    assert better < 0.5 * loss(weights, nearest(weights, scales), scales, hessian)


def test_gptq_is_frantars() -> None:
    """The same integers as the published form: column by column, with the inverse's Cholesky factor."""
    weights, hessian = drawn(5, 1, 7, 90)
    scales = channel_scales(weights)
    w, h, s = weights[0].copy(), hessian[0] + DAMP * np.diag(hessian[0]).mean() * np.eye(90), scales[0]
    order = np.argsort(np.diag(h), kind="stable")[::-1]
    w, upper = w[:, order], np.linalg.cholesky(np.linalg.inv(h[np.ix_(order, order)])).T
    expected = np.zeros_like(w)
    for j in range(90):
        expected[:, j] = np.clip(np.rint(w[:, j] / s), -127, 127)
        error = (w[:, j] - expected[:, j] * s) / upper[j, j]
        w[:, j + 1 :] -= error[:, None] * upper[j, j + 1 :]
    assert (gptq(weights, scales, hessian)[0][:, order] == expected).all()


def test_gptq_takes_dead_columns_and_few_observations() -> None:
    weights, hessian = drawn(1, 1, 5, 40, observed=3)
    hessian[:, 7, :] = hessian[:, :, 7] = 0
    scales = channel_scales(weights)
    stored = gptq(weights, scales, hessian)
    assert (stored[..., 7] == nearest(weights, scales)[..., 7]).all()
    assert loss(weights, stored, scales, hessian) < loss(weights, nearest(weights, scales), scales, hessian)
    silent = gptq(weights, scales, np.zeros_like(hessian))
    assert (silent == nearest(weights, scales)).all()


def test_compensation_finds_the_regression_and_a_ridge_holds_the_weights() -> None:
    weights, hessian = drawn(2, 2, 3, 6)
    aim = weights + 0.1
    cross = hessian @ aim.swapaxes(1, 2)
    np.testing.assert_allclose(compensated(weights, hessian, cross, 1e-12), aim, rtol=1e-6)
    held = compensated(weights, hessian, cross, 1e6)
    np.testing.assert_allclose(held, weights, atol=1e-4)
