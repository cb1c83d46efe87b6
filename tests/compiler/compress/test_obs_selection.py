"""The order of removal against least squares done by brute force."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.compiler.compress.obs_selection import ReaderData, fit, removal_order, with_ridge
from edgekit.compiler.compress.reader_moments import ReaderMoments
from edgekit.tensor_spec import Array


def moments(x: Array) -> ReaderMoments:
    """Of [rows, columns]."""
    mean = x.mean(axis=0)
    return ReaderMoments(mean, (x - mean).T @ (x - mean) / len(x), len(x))


def data(seed: int, units: int = 6, block: int = 1, outputs: int = 4) -> ReaderData:
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(units * block, units * block))
    x = rng.normal(size=(500, units * block)) @ mixed + rng.normal(size=units * block)
    weights = rng.normal(size=(units * block, outputs))
    blocks = np.arange(units * block).reshape(units, block)
    return ReaderData(weights, moments(x[:400]), moments(x[400:]), blocks)


def squared_error(reader: ReaderData, kept: Array) -> float:
    """Of the best weights for the kept columns, over the variance, on the ridged Hessian."""
    hessian = with_ridge(reader.calibration.covariance)
    weights, _ = fit(reader.weights, reader.calibration, kept)
    change = reader.weights.copy()
    change[kept] -= weights
    variance = np.sum(reader.weights * (reader.calibration.covariance @ reader.weights))
    return float(np.sum(change * (hessian @ change)) / variance)


@pytest.mark.parametrize("block", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_each_step_removes_what_costs_least(seed: int, block: int) -> None:
    readers = [data(seed, block=block), data(seed + 100, block=block)]
    order = removal_order(readers)
    removed: list[int] = []
    for unit in order.units.tolist():
        costs = {}
        for choice in set(range(6)) - set(removed):
            gone = [*removed, choice]
            costs[choice] = 0.0
            for reader in readers:
                kept = np.setdiff1d(np.arange(6 * block), reader.blocks[gone])
                costs[choice] += squared_error(reader, kept)
        assert costs[unit] == pytest.approx(min(costs.values()), rel=1e-6)
        removed.append(unit)


def test_errors_are_those_of_the_fit_on_the_other_samples() -> None:
    reader = data(1, units=8)
    order = removal_order([reader])
    for count in (1, 3, 6):
        kept = np.setdiff1d(np.arange(8), order.units[:count])
        weights, shift = fit(reader.weights, reader.calibration, kept)
        change = reader.weights.copy()
        change[kept] -= weights
        held_out = reader.validation
        bias = held_out.mean @ change - shift
        error = np.sum(change * (held_out.covariance @ change)) + np.sum(bias**2)
        variance = np.sum(reader.weights * (held_out.covariance @ reader.weights))
        assert order.error(count) == pytest.approx(error / variance, rel=1e-6)
    assert order.error(0) == 0
    assert (np.diff(order.errors) >= 0).all()


def test_a_channel_that_others_make_up_costs_nothing() -> None:
    """Column 5 is the mean of 0 and 1: it goes first, and the others take its weights over."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 6)) + 3
    x[:, 5] = (x[:, 0] + x[:, 1]) / 2
    reader = ReaderData(rng.normal(size=(6, 3)), moments(x[:1500]), moments(x[1500:]), np.arange(6)[:, None])
    order = removal_order([reader])
    assert order.units[0] in (0, 1, 5)
    assert order.error(1) < 1e-3 < order.error(2)


def test_constant_columns_are_absorbed_by_the_bias() -> None:
    """Nothing varies: the readers' outputs stay what they were."""
    x = np.broadcast_to(np.arange(1.0, 5.0), (10, 4))
    weights = np.ones((4, 2))
    fitted, shift = fit(weights, moments(x), np.array([0, 1]))
    assert np.allclose(np.array([1.0, 2.0]) @ fitted + shift, [10.0, 10.0])
