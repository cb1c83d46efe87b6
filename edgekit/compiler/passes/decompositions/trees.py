"""Decomposes the tree ensembles of ai.onnx.ml: decision trees, forests and boosted trees of scikit-learn.

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

from edgekit.compiler.model.rewriting import int_of, text_of
from edgekit.compiler.model.tree_ensembles import TreeEnsemble, read_trees
from edgekit.compiler.passes.decompositions.classifiers import (
    ORT_ONLY,
    best_label,
    both_classes,
    label_above,
    labels_of,
    post_transform,
    rows_of,
)
from edgekit.compiler.passes.decompositions.tape import Tape
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array

MOST_LEVELS = 64
"""Deepest tree that is written out: eight ops a level."""

_COMPARISONS = {
    "BRANCH_LEQ": "LessOrEqual",
    "BRANCH_LT": "Less",
    "BRANCH_GTE": "GreaterOrEqual",
    "BRANCH_GT": "Greater",
    "BRANCH_EQ": "Equal",
}


def tree_classifier(node: ir.Node) -> onnx.GraphProto:
    """Several classes: the label of the largest sum. Two classes with weights for one of them: that sum is
    the second's score, compared with 0.5 where all weights are probabilities, else with 0.
    """
    tape = Tape(node)
    labels = labels_of(node)
    x, rows, columns = rows_of(tape, node)
    trees = read_trees(node, "class", len(labels), columns)
    base = _floats(node, "base_values")
    if len(labels) == 2:
        return _two_classes(tape, node, trees, base, labels, x, rows, columns)
    _check_covered(trees, base)
    leaves = _leaves(tape, trees, x, rows, columns)
    scores = tape("ReduceSum", tape("Gather", trees.weights, leaves), np.array([1], np.int64), keepdims=0)
    if len(base) not in (0, len(labels)):
        raise Inexpressible(f"has {len(base)} base_values for {len(labels)} classes", ORT_ONLY)
    if base.any():
        scores = tape("Add", scores, base)
    return tape.body(best_label(tape, scores, labels), post_transform(tape, node, scores))


def tree_regressor(node: ir.Node) -> onnx.GraphProto:
    """Decompose TreeEnsembleRegressor: sum or mean of the trees' leaves, plus the base values."""
    tape = Tape(node)
    targets = int_of(node, "n_targets", 1)
    x, rows, columns = rows_of(tape, node)
    trees = read_trees(node, "target", targets, columns)
    kind = text_of(node, "aggregate_function", "SUM")
    if kind not in ("SUM", "AVERAGE"):
        raise Inexpressible(
            f"aggregate_function {kind} cannot be expressed in ONNX's standard operators", ORT_ONLY
        )
    leaves = _leaves(tape, trees, x, rows, columns)
    weights = trees.weights / np.float32(len(trees.roots)) if kind == "AVERAGE" else trees.weights
    scores = tape("ReduceSum", tape("Gather", weights, leaves), np.array([1], np.int64), keepdims=0)
    base = _floats(node, "base_values")
    if base.any():
        scores = tape("Add", scores, base)
    return tape.body(post_transform(tape, node, scores))


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
    if trees.covered[:, 1].any() or len(base) > 1:
        raise Inexpressible(
            "has two classes and weights for the second only; ONNX Runtime then returns labels 0 and 1 "
            "whatever the labels are",
            ORT_ONLY,
        )
    leaves = _leaves(tape, trees, x, rows, columns)
    given = tape("Gather", trees.weights[:, :1].copy(), leaves)
    score = tape("ReduceSum", given, np.array([1], np.int64), keepdims=0)
    if base.any():
        score = tape("Add", score, base)
    probable = bool(np.all(trees.weights >= 0))
    label = label_above(tape, score, 0.5 if probable else 0.0, labels, rows)
    if text_of(node, "post_transform", "NONE") == "LOGISTIC":
        return tape.body(label, tape("Sigmoid", both_classes(tape, score, "-s")))
    if text_of(node, "post_transform", "NONE") == "PROBIT":
        return tape.body(label, post_transform(tape, node, score))
    return tape.body(label, both_classes(tape, score, "1 - s" if probable else "-s"))


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


def _leaves(tape: Tape, trees: TreeEnsemble, x: str, rows: int, columns: int) -> str:
    """Return the leaf that each row reaches in each tree, int64[rows, trees]."""
    if trees.depth > MOST_LEVELS:
        raise Inexpressible(
            f"its trees are {trees.depth} levels deep; at most {MOST_LEVELS} are supported", ORT_ONLY
        )
    if len(trees.modes) > 1 or not trees.modes <= _COMPARISONS.keys():
        raise Inexpressible(f"uses the comparison {', '.join(sorted(trees.modes))}", ORT_ONLY)
    if trees.tracks_missing:
        raise Inexpressible("has separate branches for missing values", ORT_ONLY)
    at = tape.constant(np.tile(trees.roots, (rows, 1)))
    if not trees.depth:
        return at
    flat = tape.reshape(x, (rows * columns,))
    starts: Array = (np.arange(rows, dtype=np.int64) * columns)[:, None]
    compare = _COMPARISONS[next(iter(trees.modes))]
    for _ in range(trees.depth):
        column = tape("Gather", trees.features, at)
        if rows > 1:
            column = tape("Add", column, starts)
        holds = tape(compare, tape("Gather", flat, column), tape("Gather", trees.thresholds, at))
        at = tape("Where", holds, tape("Gather", trees.when_true, at), tape("Gather", trees.when_false, at))
    return at


def _floats(node: ir.Node, name: str) -> Array:
    return np.array(node.attributes[name].as_floats() if name in node.attributes else (), np.float32)
