"""Decomposes LinearClassifier and LinearRegressor of ai.onnx.ml: scikit-learn's linear models.

LinearClassifier(x)  =>  scores = x @ coefficients.T + intercepts; label = labels[ArgMax(scores)]
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.compiler.model.ml_shapes import ML_DOMAIN
from edgekit.compiler.model.rewriting import int_of
from edgekit.compiler.passes.decompositions.classifiers import (
    best_label,
    floats_of,
    label_above,
    labels_of,
    post_transform,
    rows_of,
    two_classes,
)
from edgekit.compiler.passes.decompositions.tape import Tape, decomposes
from edgekit.tensor_spec import Array


@decomposes("LinearClassifier", domain=ML_DOMAIN)
def linear_classifier(node: ir.Node) -> onnx.GraphProto:
    """Decompose LinearClassifier. The label is chosen before the post transform. With one row of
    coefficients, the score is that of the second of two classes, and its sign decides.
    """
    tape = Tape(node)
    x, rows, columns = rows_of(tape, node)
    intercepts = floats_of(node, "intercepts")
    scores = _product(tape, x, node, columns, intercepts)
    labels = labels_of(node)
    if len(intercepts) > 1:
        return tape.body(best_label(tape, scores, labels), post_transform(tape, node, scores))
    label = label_above(tape, scores, 0.0, labels, rows)
    return two_classes(tape, node, label, scores, "1 - s")


@decomposes("LinearRegressor", domain=ML_DOMAIN)
def linear_regressor(node: ir.Node) -> onnx.GraphProto:
    """Decompose LinearRegressor into ``x @ coefficients.T + intercepts``."""
    tape = Tape(node)
    x, _, columns = rows_of(tape, node)
    targets = int_of(node, "targets", 1)
    intercepts = floats_of(node, "intercepts")
    if not len(intercepts):
        intercepts = np.zeros(targets, np.float32)
    scores = _product(tape, x, node, columns, intercepts)
    return tape.body(post_transform(tape, node, scores))


def _product(tape: Tape, x: str, node: ir.Node, columns: int, intercepts: Array) -> str:
    weights = floats_of(node, "coefficients").reshape(len(intercepts), columns)
    return tape("Gemm", x, np.ascontiguousarray(weights.T), intercepts)
