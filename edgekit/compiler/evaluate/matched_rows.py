"""Rows of outputs that TopK or NonMaxSuppression orders: matched before they are compared.

A score that differs in its last digit moves a row to another place:

    float    box 3 .91 | box 8 .90 | box 5 .40 | box 1 .11
    int8     box 8 .90 | box 3 .89 | box 5 .41 | box 7 .11    two have changed places, one is another one

Each row of the float model, the best score first, takes the nearest of the variant's rows that is left. Rows
near the cut-off are not judged: which of them is still among the best is chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.compiler.evaluate.output_channels import Channels
from edgekit.tensor_spec import Array

Outputs = Mapping[str, Array]

NEAR_CUT = 0.25
"""Rows in this lowest share of the observed scores are near the cut-off."""
SAME_ROW = 0.1
"""Rows are the same if no column differs by more of its observed range. Whole numbers, e.g. a class, must be
equal."""


@dataclass(frozen=True, eq=False)
class RowGroup:
    """Outputs with rows of one selection.

    Attributes:
        axes: Axis of the rows, by output.
        ranges: float64 [columns]: maximum less minimum over the samples; 0 for whole numbers.
        floor: Score from which on a row is judged; None if no column is the score.
        score: Index of the score's column; None if there is none.
    """

    axes: Mapping[str, int]
    ranges: Array
    score: int | None
    floor: float | None

    def table(self, outputs: Outputs) -> Array:
        """Return all columns of the rows: float64 [rows, columns]."""
        parts = [np.moveaxis(outputs[name], axis, 0) for name, axis in self.axes.items()]
        return np.concatenate([p.reshape(len(p), -1).astype(np.float64) for p in parts], axis=1)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Rows of one sample.

    Attributes:
        expected, actual: Indices of the rows that are the same, pair by pair.
        judged: Number of rows that had to be found; without a score, of the variant's if it has more.
    """

    expected: Array
    actual: Array
    judged: int


def row_groups(channels: Channels, expected: Sequence[Outputs]) -> list[RowGroup]:
    """Group the outputs whose rows are of one selection: those with as many rows."""
    by_count: dict[tuple[int, ...], dict[str, int]] = {}
    for name, one in channels.items():
        if one.rows is not None:
            counts = tuple(outputs[name].shape[one.rows] for outputs in expected)
            by_count.setdefault(counts, {})[name] = one.rows
    groups = [_group(axes, channels, expected) for counts, axes in by_count.items() if any(counts)]
    return [group for group in groups if group is not None]


def _group(axes: Mapping[str, int], channels: Channels, expected: Sequence[Outputs]) -> RowGroup | None:
    shapes = [
        [np.delete(outputs[name].shape, axis).tolist() for name, axis in axes.items()] for outputs in expected
    ]
    if any(shape != shapes[0] for shape in shapes):
        return None
    plain = RowGroup(axes, np.zeros(0), None, None)
    rows = np.concatenate([plain.table(outputs) for outputs in expected])
    if not np.isfinite(rows).all():
        return None
    ranges = np.where((rows == np.rint(rows)).all(0), 0.0, np.ptp(rows, axis=0))
    ranks = np.concatenate([_ranks(channels, name, expected[0][name], axis) for name, axis in axes.items()])
    score = int(ranks.argmax()) if ranks.any() else None
    floor = None
    if score is not None:
        low, high = rows[:, score].min(), rows[:, score].max()
        floor = float(low + NEAR_CUT * (high - low))
    return RowGroup(axes, ranges, score, floor)


def _ranks(channels: Channels, name: str, array: Array, axis: int) -> Array:
    """Mark the columns of an output that are the values by which a TopK orders."""
    columns = column_channels(channels, name, array, axis)
    ranks = channels[name].ranks
    return ranks[columns] if len(ranks) else np.zeros(len(columns), bool)


def column_channels(channels: Channels, name: str, array: Array, axis: int) -> Array:
    """Return the channel of each column of an output: its own number if it is not known."""
    labels = channels[name].labels
    if labels is None:
        return np.arange(array.size // max(array.shape[axis], 1))
    columns: Array = np.moveaxis(labels.reshape(array.shape), axis, 0)[0].ravel()
    return columns


def match_rows(group: RowGroup, expected: Outputs, actual: Outputs) -> Pairs | None:
    """Match the rows of one sample; None if the variant's have other columns or are not finite."""
    x, y = group.table(expected), group.table(actual)
    if x.shape[1] != y.shape[1] or not np.isfinite(y).all():
        return None
    _, first = np.unique(x, axis=0, return_index=True)  # padding is judged once
    judged = np.sort(first)
    if group.score is not None and group.floor is not None:
        judged = judged[x[judged, group.score] >= group.floor]
        judged = judged[np.argsort(-x[judged, group.score], kind="stable")]
    whole = group.ranges == 0
    scale = np.where(whole, 1.0, group.ranges)
    left = np.ones(len(y), bool)
    pairs = []
    for row in judged.tolist():
        off = np.abs(y - x[row]) / scale
        off[:, whole] = off[:, whole] > 0.5
        cost = np.where(left & (off.max(1, initial=0.0) <= SAME_ROW), np.square(off).sum(1), np.inf)
        if len(y) and np.isfinite(cost.min()):
            nearest = int(cost.argmin())
            left[nearest] = False
            pairs.append((row, nearest))
    both = np.array(pairs, np.int64).reshape(-1, 2)
    count = len(judged) if group.score is not None else max(len(judged), len(np.unique(y, axis=0)))
    return Pairs(both[:, 0], both[:, 1], count)
