"""Decomposes the tree ensembles of ai.onnx.ml: decision trees, forests and boosted trees of scikit-learn,
XGBoost, LightGBM and CatBoost.

All trees are descended at once, one step a level of the deepest; a leaf leads to itself:

    at = roots
    depth times:  at = Where(x[features[at]] <= thresholds[at], when_true[at], when_false[at])
    scores = sum over the trees of weights[at]

This is the tree traversal strategy of Hummingbird (Nakandala et al., "A Tensor Compiler for Unified Machine
Learning Prediction Serving", OSDI 2020, section 4.1). Its other one, two products of matrices, needs memory
of the square of a tree's size.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.compiler.model.ml_shapes import ML_DOMAIN
from edgekit.compiler.model.rewriting import int_of, text_of
from edgekit.compiler.model.tree_ensembles import LEAF, TreeEnsemble, read_tree_ensemble, read_trees
from edgekit.compiler.passes.decompositions.classifiers import (
    ORT_ONLY,
    best_label,
    floats_of,
    label_above,
    labels_of,
    post_transform,
    rows_of,
    two_classes,
)
from edgekit.compiler.passes.decompositions.tape import Tape, decomposes
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array

MOST_LEVELS = 64
"""Deepest tree that is written out: eight ops a level."""

_COMPARISONS = {
    "BRANCH_LEQ": "LessOrEqual",
    "BRANCH_LT": "Less",
    "BRANCH_GTE": "LessOrEqual",
    "BRANCH_GT": "Less",
    "BRANCH_EQ": "Equal",
    "BRANCH_NEQ": "Equal",
}
_SWAPPED = ("BRANCH_GTE", "BRANCH_GT")
"""Comparisons with the threshold first: in OpenVINO 2026.4, Greater holds for NaN."""
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
"""In the order of TreeEnsemble's numbers."""


@decomposes("TreeEnsembleClassifier", domain=ML_DOMAIN)
def tree_classifier(node: ir.Node) -> onnx.GraphProto:
    """Decompose TreeEnsembleClassifier. With several classes, the label is that of the largest sum. With two
    classes and weights for one of them, that sum is the second's score. It is compared with 0.5 if all
    weights are probabilities, else with 0. With two classes and weights for both, the second's score is
    compared with 0."""
    tape = Tape(node)
    labels = labels_of(node)
    x, rows, columns = rows_of(tape, node)
    trees = read_trees(node, "class", len(labels), columns)
    base = floats_of(node, "base_values")
    if len(labels) == 2:
        return _two_classes(tape, node, trees, base, labels, x, rows, columns)
    _check_covered(trees, base)
    scores = _sums(tape, trees, trees.weights, x, rows, columns)
    if len(base) not in (0, len(labels)):
        raise Inexpressible(f"has {len(base)} base_values for {len(labels)} classes", ORT_ONLY)
    if base.any():
        scores = tape("Add", scores, base)
    return tape.body(best_label(tape, scores, labels), post_transform(tape, node, scores))


@decomposes("TreeEnsemble", "TreeEnsembleRegressor", domain=ML_DOMAIN)
def tree_regressor(node: ir.Node) -> onnx.GraphProto:
    """Decompose TreeEnsembleRegressor and TreeEnsemble: sum or mean of the leaves, plus the base values."""
    tape = Tape(node)
    targets = int_of(node, "n_targets", 1)
    x, rows, columns = rows_of(tape, node)
    if node.op_type == "TreeEnsemble":
        trees = read_tree_ensemble(node, targets, columns)
        number = int_of(node, "aggregate_function", 1)
        kind = _AGGREGATES[number] if 0 <= number < len(_AGGREGATES) else str(number)
        if number := int_of(node, "post_transform", 0):
            raise Inexpressible(
                f"has post_transform {number}, which ONNX and ONNX Runtime 1.32 number differently",
                "export it with post_transform 0, and the transform as an operator behind it",
            )
    else:
        trees = read_trees(node, "target", targets, columns)
        kind = text_of(node, "aggregate_function", "SUM")
    if kind not in ("SUM", "AVERAGE"):
        raise Inexpressible(
            f"aggregate_function {kind} cannot be expressed in ONNX's standard operators", ORT_ONLY
        )
    weights = trees.weights / np.float32(len(trees.roots)) if kind == "AVERAGE" else trees.weights
    scores = _sums(tape, trees, weights, x, rows, columns)
    base = floats_of(node, "base_values")
    if base.any():
        scores = tape("Add", scores, base)
    is_plain = node.op_type == "TreeEnsemble"
    return tape.body(scores if is_plain else post_transform(tape, node, scores))


def _two_classes(
    tape: Tape,
    node: ir.Node,
    trees: TreeEnsemble,
    base: Array,
    labels: Array,
    x: str,
    rows: int,
    columns: int,
) -> onnx.GraphProto:
    if trees.covered.all() and not len(base) and labels.tolist() == [0, 1]:  # CatBoost's
        scores = _sums(tape, trees, trees.weights, x, rows, columns)
        label = label_above(tape, tape.part(scores, 1, 1, 2), 0.0, labels, rows)
        return tape.body(label, post_transform(tape, node, scores))
    if trees.covered[:, 1].any() or len(base) > 1:
        raise Inexpressible(
            "has two classes and weights for the second, for which ONNX Runtime returns labels 0 and 1 "
            f"whatever the labels are: here {', '.join(map(str, labels))}",
            ORT_ONLY,
        )
    score = _sums(tape, trees, trees.weights[:, :1].copy(), x, rows, columns)
    if base.any():
        score = tape("Add", score, base)
    probable = bool(np.all(trees.weights >= 0))
    label = label_above(tape, score, 0.5 if probable else 0.0, labels, rows)
    return two_classes(tape, node, label, score, "1 - s" if probable else "-s")


def _check_covered(trees: TreeEnsemble, base: Array) -> None:
    """Check weights. ONNX Runtime only chooses classes named by a leaf or base value; an empty sum is 0,
    which must not win over negative ones."""
    if len(base) or np.all(trees.weights[trees.covered] > 0):
        return
    for tree in np.unique(trees.trees):
        if trees.covered[trees.trees == tree].all():
            return
    every = [trees.covered[trees.trees == tree].all(axis=0) for tree in np.unique(trees.trees)]
    if not np.any(every, axis=0).all():
        raise Inexpressible("a class has no weight in some leaves and negative weights in others", ORT_ONLY)


def _sums(tape: Tape, trees: TreeEnsemble, weights: Array, x: str, rows: int, columns: int) -> str:
    reached = tape("Gather", weights, _leaves(tape, trees, x, rows, columns))
    return tape("ReduceSum", reached, np.array([1], np.int64), keepdims=0)


def _leaves(tape: Tape, trees: TreeEnsemble, x: str, rows: int, columns: int) -> str:
    if trees.depth > MOST_LEVELS:
        raise Inexpressible(
            f"its trees are {trees.depth} levels deep; at most {MOST_LEVELS} are supported", ORT_ONLY
        )
    node_ids = tape.constant(np.tile(trees.roots, (rows, 1)))
    if not trees.depth:
        return node_ids
    flat = tape.reshape(x, (rows * columns,))
    starts: Array = (np.arange(rows, dtype=np.int64) * columns)[:, None]
    for _ in range(trees.depth):
        column = tape("Gather", trees.features, node_ids)
        if rows > 1:
            column = tape("Add", column, starts)
        holds = _holds(tape, trees, node_ids, tape("Gather", flat, column))
        node_ids = tape(
            "Where",
            holds,
            tape("Gather", trees.when_true, node_ids),
            tape("Gather", trees.when_false, node_ids),
        )
    return node_ids


def _holds(tape: Tape, trees: TreeEnsemble, nodes: str, value: str) -> str:
    """Return whether the condition of each node in ``nodes`` holds for its value. A missing value is NaN."""
    threshold, holds = tape("Gather", trees.thresholds, nodes), ""
    modes = sorted(set(trees.modes.tolist()) - {LEAF})
    for mode in modes:
        operands = (threshold, value) if mode in _SWAPPED else (value, threshold)
        condition = tape(_COMPARISONS[mode], *operands)
        condition = tape("Not", condition) if mode == "BRANCH_NEQ" else condition
        if len(modes) > 1:
            condition = tape("And", condition, _look_up(tape, trees.modes == mode, nodes))
        holds = tape("Or", holds, condition) if holds else condition
    if trees.missing.any():
        absent = tape("And", tape("IsNaN", value), _look_up(tape, trees.missing, nodes))
        holds = tape("Or", holds, absent)
    return holds


def _look_up(tape: Tape, table: Array, nodes: str) -> str:
    """Gather from a table of booleans, which Core ML does not do."""
    return tape("Greater", tape("Gather", table.astype(np.float32), nodes), np.array(0.5, np.float32))
