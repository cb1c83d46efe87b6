"""Rows at the thresholds of a model's trees, where a rounded threshold takes another branch.

For each node there are three rows that reach it: with the threshold, and the float32 below and above it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.ml_shapes import ML_DOMAIN, class_labels
from edgekit.compiler.model.onnx_file import open_bytes
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.model.rewriting import int_of
from edgekit.compiler.model.tree_ensembles import LEAF, TreeEnsemble, read_trees
from edgekit.errors import ModelError
from edgekit.tensor_spec import Array

ROWS_LIMIT = 12_000
"""Most rows; of larger ensembles, nodes are taken evenly."""
MISSING_ROWS = 500
"""Most rows with missing values."""
TOLERANCE = 1e-4
"""Largest difference relative to the greatest output: float32 sums of a thousand trees differ by 1e-5."""
ZERO = np.float32(1e-35)
"""LightGBM's zeros end here."""
INFINITE = np.float32(np.inf)


def check_thresholds(
    onnx_file: bytes, name: str, engine: str, compute: Callable[[Array, int], list[Array]]
) -> None:
    """Compare a converted model of trees with the original, at the float32 neighbours of every threshold.

    Args:
        onnx_file: The converted model. If its trees do not read its input, nothing is compared.
        compute: Function of the framework: float32[rows, columns], number of outputs -> outputs.
    """
    opened = open_bytes(onnx_file, name)
    source = opened.graph.inputs[0].name or ""
    for x in threshold_rows(opened):
        reference = Reference(open_bytes(onnx_file, name, {source: x.shape}))
        try:
            expected = compute(x, len(reference.outputs))
        except ValueError:
            if np.isnan(x).any():  # it takes no missing values
                continue
            raise
        results = list(reference.run({source: x}).values())
        wrong = np.zeros(len(x), bool)
        worst = 0.0
        for result, answer in zip(results, expected, strict=True):
            answer = np.asarray(answer).reshape(len(x), -1)
            result = np.asarray(result).reshape(len(x), -1)
            if answer.dtype.kind in "iub":
                differs = (answer != result)[:, 0] & ~_tied(expected, len(x))
                worst = max(worst, float(differs.any()))
            else:
                errors = np.abs(answer.astype(np.float64) - result).max(1)
                differs = ~(errors <= TOLERANCE * max(np.abs(answer).max(), 1e-30))
                worst = max(worst, float(errors[differs].max(initial=0)))
            wrong |= differs
        if wrong.any():
            raise ModelError(
                f"{name}: {wrong.sum()} of {len(x)} rows at the thresholds of its trees"
                f"{' or with missing values' if np.isnan(x).any() else ''} differ from {engine}, by up to "
                f"{worst:.3g}: its exporter does not keep every branch. Please report it with the model; for "
                "now export the model to ONNX yourself and build the .onnx file"
            )


def _tied(outputs: list[Array], rows: int) -> Array:
    """Return whether the two best scores of each row are equal within rounding: either label is right."""
    scores = np.asarray(outputs[-1]).reshape(rows, -1).astype(np.float64)
    if len(outputs) < 2:
        return np.zeros(rows, bool)
    if scores.shape[1] == 1:
        return np.abs(scores[:, 0]) <= TOLERANCE
    best = np.sort(scores, axis=1)
    return best[:, -1] - best[:, -2] <= TOLERANCE * np.maximum(1, np.abs(best[:, -1]))


def threshold_rows(model: ir.Model) -> list[Array]:
    """Return rows at the thresholds, float32[rows, columns], and such rows with missing values."""
    ensembles = list(_ensembles(model))
    if not ensembles:
        return []
    rng = np.random.default_rng(0)
    columns = int(model.graph.inputs[0].shape[1])  # type: ignore[index, arg-type]
    values: list[list[Array]] = [[np.array([0, ZERO, 1], np.float32)] for _ in range(columns)]
    for trees in ensembles:
        for column in np.unique(trees.features):
            values[column].append(trees.thresholds[(trees.features == column) & (trees.modes != LEAF)])
    pools = [_neighbours(np.concatenate(pool)) for pool in values]
    for column in {
        int(column) for trees in ensembles for column in trees.features[trees.modes == "BRANCH_EQ"]
    }:
        pools[column] = pools[column][~_is_subnormal(pools[column])]
    count = sum(int((trees.modes != LEAF).sum()) for trees in ensembles)
    step = max(1, -(-3 * count // ROWS_LIMIT))
    rows = [row for trees in ensembles for row in _rows_of(trees, pools, rng, step)]
    if not rows:
        return []
    exact = np.stack(rows)
    missing = exact[rng.permutation(len(exact))[:MISSING_ROWS]].copy()
    missing[rng.random(missing.shape) < max(0.2, 1 / columns)] = np.nan
    return [exact, missing]


def _is_subnormal(values: Array) -> Array:
    """Return whether values are below float32's normal range; engines may read such categories as 0."""
    subnormal: Array = (values != 0) & (np.abs(values) < np.finfo(np.float32).tiny)
    return subnormal


def _neighbours(values: Array) -> Array:
    with np.errstate(over="ignore"):
        around = [np.nextafter(values, -INFINITE), values, np.nextafter(values, INFINITE)]
    pool: Array = np.unique(np.concatenate(around))
    return pool[np.isfinite(pool)]


def _ensembles(model: ir.Model) -> Iterator[TreeEnsemble]:
    for node in model.graph:
        if node.domain != ML_DOMAIN or node.op_type not in (
            "TreeEnsembleClassifier",
            "TreeEnsembleRegressor",
        ):
            continue
        x = node.inputs[0]
        while x is not None and (producer := x.producer()) is not None:
            if producer.op_type not in ("Where", "Identity"):  # Where: columns that float32_trees.py changes
                break
            x = producer.inputs[-1]
        if x is None or x not in model.graph.inputs or x.shape is None or len(x.shape) != 2:
            continue
        columns = int(x.shape[1])  # type: ignore[arg-type]
        if node.op_type == "TreeEnsembleClassifier":
            yield read_trees(node, "class", class_labels(node)[1], columns)
        else:
            yield read_trees(node, "target", int_of(node, "n_targets", 1), columns)


def _rows_of(trees: TreeEnsemble, pools: list[Array], rng: np.random.Generator, step: int) -> Iterator[Array]:
    """Walk every tree with the bounds of the columns, and yield rows for every ``step``-th node."""
    pending: list[tuple[int, dict[int, tuple[np.float32, np.float32]]]] = [
        (int(root), {}) for root in trees.roots
    ]
    number = 0
    while pending:
        node, bounds = pending.pop()
        mode = trees.modes[node]
        if mode == LEAF:
            continue
        column, threshold = int(trees.features[node]), trees.thresholds[node]
        low, high = bounds.get(column, (-INFINITE, INFINITE))
        below, above = np.nextafter(threshold, -INFINITE), np.nextafter(threshold, INFINITE)
        number += 1
        if number % step == 0:
            for value in (below, threshold, above):
                is_category = mode == "BRANCH_EQ"
                if low <= value <= high and np.isfinite(value) and not (is_category and _is_subnormal(value)):
                    row = np.array([rng.choice(pool) for pool in pools], np.float32)
                    for key, (lower, upper) in bounds.items():
                        row[key] = np.clip(row[key], lower, upper)
                    row[column] = value
                    if np.isfinite(row).all():
                        yield row
        true, false = {
            "BRANCH_LEQ": ((low, min(high, threshold)), (max(low, above), high)),
            "BRANCH_LT": ((low, min(high, below)), (max(low, threshold), high)),
            "BRANCH_GT": ((max(low, above), high), (low, min(high, threshold))),
            "BRANCH_GTE": ((max(low, threshold), high), (low, min(high, below))),
            "BRANCH_EQ": ((max(low, threshold), min(high, threshold)), (low, high)),
            "BRANCH_NEQ": ((low, high), (max(low, threshold), min(high, threshold))),
        }[str(mode)]
        for following, limits in ((trees.when_true, true), (trees.when_false, false)):
            if limits[0] <= limits[1]:
                pending.append((int(following[node]), {**bounds, column: limits}))
