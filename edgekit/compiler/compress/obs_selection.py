"""Selection of channels to remove: Optimal Brain Surgeon on the readers of a group, unit by unit.

Removing columns b of a reader with weights W [columns, outputs] and Hessian H = E[x x^T] raises the error of
its outputs by tr(W_b^T (H^-1_bb)^-1 W_b), if all other columns are refitted; the fit is
W - H^-1_:b (H^-1_bb)^-1 W_b, and H^-1 loses the same part (Hassibi and Stork, 1992; for channels of a layer
Hubara et al., 2021, and OBSPA, arXiv 2403.18955). With the bias fitted as well, H is the covariance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.compiler.compress.reader_moments import ReaderMoments
from edgekit.tensor_spec import Array

RIDGE = 1e-2
"""Added to the Hessian's diagonal, as a multiple of its mean: what the samples hardly show gets no large
weight."""
CURVE_POINTS = 12
"""Points of a curve of errors, evenly spread up to ``MOST``."""
MOST = 0.75
"""The largest part of a group that is removed."""


@dataclass(frozen=True, eq=False)
class ReaderData:
    """Data of one reader of a group, for the selection.

    Attributes:
        weights: float64 [columns, outputs].
        calibration: Moments of the samples that weights are fitted to.
        validation: Moments of other samples, to measure errors on.
        blocks: Columns of each unit of the group, int64 [units, columns of a unit].
    """

    weights: Array
    calibration: ReaderMoments
    validation: ReaderMoments
    blocks: Array


@dataclass(frozen=True, eq=False)
class RemovalOrder:
    """Order in which a group's units are removed, with the error curve.

    Attributes:
        units: Indices into the group's units, in the order of removal.
        removed: Numbers of removed units at the points of the curve, from 0.
        errors: At these points, the error of the readers' outputs on the validation samples over their
            variance, summed over the readers. It never decreases.
    """

    units: Array
    removed: Array
    errors: Array

    def error(self, removed: float) -> float:
        """Return the error after some units are removed, interpolated between the points of the curve."""
        return float(np.interp(removed, self.removed, self.errors))


def removal_order(readers: Sequence[ReaderData]) -> RemovalOrder:
    """Compute the order by the summed least squares costs, each relative to its outputs' variance."""
    count = len(readers[0].blocks)
    limit = max(int(count * MOST), 1)
    points = np.unique(np.linspace(0, limit, CURVE_POINTS + 1).astype(int))
    states = [_RemovalState(reader) for reader in readers]
    alive = np.ones(count, bool)
    order: list[int] = []
    errors = [0.0]
    for done in range(1, limit + 1):
        cost = sum(state.costs() for state in states)
        unit = int(np.argmin(np.where(alive, cost, np.inf)))
        for state in states:
            state.remove(unit)
        alive[unit] = False
        order.append(unit)
        if done in points:
            errors.append(sum(state.held_out_error() for state in states))
    return RemovalOrder(np.array(order), points, np.maximum.accumulate(errors))


def fit(weights: Array, moments: ReaderMoments, columns: Array) -> tuple[Array, Array]:
    """Fit the weights of the kept columns, and the change of the bias, by least squares.

    Args:
        weights: float64 [columns, outputs].

    Returns:
        float64 [kept, outputs] and [outputs].
    """
    hessian = with_ridge(moments.covariance)
    part = hessian[np.ix_(columns, columns)]
    fitted = np.linalg.solve(part, hessian[columns] @ weights)
    return fitted, moments.mean @ weights - moments.mean[columns] @ fitted


def with_ridge(covariance: Array) -> Array:
    """Return the Hessian with RIDGE on its diagonal; 1 where every column is constant."""
    mean = float(np.trace(covariance)) / len(covariance)
    return covariance + (RIDGE * mean if mean > 0 else 1.0) * np.eye(len(covariance))


class _RemovalState:
    """State of one reader while units are removed."""

    def __init__(self, reader: ReaderData) -> None:
        self._reader = reader
        self._weights = reader.weights.copy()
        self._inverse = np.linalg.inv(with_ridge(reader.calibration.covariance))
        centred = reader.calibration.covariance
        self._variance = max(float(np.sum(reader.weights * (centred @ reader.weights))), 1e-30)
        held_out = reader.validation.covariance
        self._held_out = max(float(np.sum(reader.weights * (held_out @ reader.weights))), 1e-30)

    def costs(self) -> Array:
        blocks = self._reader.blocks
        if blocks.shape[1] == 1:
            columns = blocks[:, 0]
            diagonal = np.maximum(self._inverse[columns, columns], 1e-300)
            squares = np.einsum("co,co->c", self._weights[columns], self._weights[columns])
            return np.asarray(squares / diagonal / self._variance)
        inverses = self._inverse[blocks[:, :, None], blocks[:, None, :]]
        inverses += 1e-12 * np.eye(blocks.shape[1])  # of removed units they are zero
        weights = self._weights[blocks]
        errors = np.einsum("uco,uco->u", weights, np.linalg.solve(inverses, weights))
        return np.asarray(errors / self._variance)

    def remove(self, unit: int) -> None:
        block = self._reader.blocks[unit]
        block_inverse = np.linalg.inv(self._inverse[np.ix_(block, block)])
        gain = self._inverse[:, block] @ block_inverse
        self._weights -= gain @ self._weights[block]
        self._inverse -= gain @ self._inverse[block]
        self._weights[block] = 0
        self._inverse[block] = 0
        self._inverse[:, block] = 0

    def held_out_error(self) -> float:
        """Compute the error of the outputs on the validation samples, over their variance."""
        change = self._reader.weights - self._weights
        shift = (self._reader.validation.mean - self._reader.calibration.mean) @ change
        error = np.sum(change * (self._reader.validation.covariance @ change)) + np.sum(shift**2)
        return float(error) / self._held_out
