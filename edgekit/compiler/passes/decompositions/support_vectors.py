"""Decomposes SVMClassifier and SVMRegressor of ai.onnx.ml, which are libsvm's machines.

    k = kernel(x, support vectors)
    score of the pair of classes i < j = k @ coefficients of the pair + rho
    votes: class i where the score is above 0, else j; the label is that of the most votes

The form of libsvm (Chang and Lin, "LIBSVM: A Library for Support Vector Machines", 2011, sections 2 and 7).
Its probabilities come of an iteration (section 8), which has no form in plain ops.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.compiler.model.ml_shapes import ML_DOMAIN
from edgekit.compiler.model.rewriting import int_of, ints_of, text_of
from edgekit.compiler.passes.decompositions.classifiers import (
    FLOAT,
    ORT_ONLY,
    best_label,
    both_classes,
    floats_of,
    label_above,
    labels_of,
    post_transform,
    rows_of,
)
from edgekit.compiler.passes.decompositions.tape import Tape, decomposes
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array


@decomposes("SVMClassifier", domain=ML_DOMAIN)
def svm_classifier(node: ir.Node) -> onnx.GraphProto:
    """Decompose SVMs, one against one. Two classes: column two is the score; above 0 the first wins."""
    tape = Tape(node)
    labels = labels_of(node)
    per_class = ints_of(node, "vectors_per_class")
    if not sum(per_class):
        raise Inexpressible("has no support vectors; a linear SVM in this form is not supported", ORT_ONLY)
    if "prob_a" in node.attributes:
        raise Inexpressible(
            "its probabilities need an iteration (libsvm's pairwise coupling)",
            "build it for ort, or train with probability=False: the decision function is supported",
        )
    if len(labels) > 2 and text_of(node, "post_transform", "NONE") != "NONE":
        raise Inexpressible("applies post_transform to the scores of class pairs", ORT_ONLY)
    x, rows, columns = rows_of(tape, node)
    kernel = _kernel(tape, node, x, rows, columns, sum(per_class))
    weights, firsts, seconds = _pairs(node, per_class)
    rho = floats_of(node, "rho")
    scores = tape("Gemm", kernel, weights, rho)
    if len(labels) == 2:
        label = label_above(tape, scores, 0.0, labels[::-1].copy(), rows)
        return tape.body(label, post_transform(tape, node, both_classes(tape, scores, "-s")))
    wins = tape("Cast", tape("Greater", scores, np.zeros((), np.float32)), to=FLOAT)
    # The votes for a class: the pairs it wins as their first, and those it does not lose as their second.
    votes = tape("Gemm", wins, firsts - seconds, seconds.sum(axis=0))
    return tape.body(best_label(tape, votes, labels), scores)


@decomposes("SVMRegressor", domain=ML_DOMAIN)
def svm_regressor(node: ir.Node) -> onnx.GraphProto:
    """Decompose SVMRegressor: sum over support vectors, plus rho; ``one_class``: 1 above 0, else -1."""
    tape = Tape(node)
    x, rows, columns = rows_of(tape, node)
    vectors = int_of(node, "n_supports", 0)
    coefficients = floats_of(node, "coefficients")
    rho = floats_of(node, "rho")
    kernel = _kernel(tape, node, x, rows, columns, vectors) if vectors else x
    scores = tape("Gemm", kernel, coefficients[:, None].copy(), rho)
    if int_of(node, "one_class", 0):
        above = tape("Greater", scores, np.zeros((), np.float32))
        return tape.body(tape("Where", above, np.array(1, np.float32), np.array(-1, np.float32)))
    return tape.body(post_transform(tape, node, scores))


def _kernel(tape: Tape, node: ir.Node, x: str, rows: int, columns: int, vectors: int) -> str:
    """Compute ``kernel(x, support vectors)``, float32[rows, vectors]."""
    support = floats_of(node, "support_vectors").reshape(vectors, columns)
    kind = text_of(node, "kernel_type", "LINEAR")
    parameters = node.attributes["kernel_params"].as_floats() if "kernel_params" in node.attributes else ()
    gamma, coef0, degree = (*parameters, 0.0, 0.0, 0.0)[:3]
    if kind == "RBF":
        apart = tape("Sub", tape.reshape(x, (rows, 1, columns)), support[None])
        distance = tape("ReduceSumSquare", apart, np.array([2], np.int64), keepdims=0)
        return tape("Exp", tape("Mul", distance, np.array(-gamma, np.float32)))
    product = tape("MatMul", x, np.ascontiguousarray(support.T))
    if kind == "LINEAR":
        return product
    scaled = tape("Add", tape("Mul", product, np.array(gamma, np.float32)), np.array(coef0, np.float32))
    if kind == "SIGMOID":
        return tape("Tanh", scaled)
    if kind == "POLY" and degree == int(degree) and 1 <= degree <= 8:
        power = scaled  # a Pow of a negative number is refused by some engines
        for _ in range(int(degree) - 1):
            power = tape("Mul", power, scaled)
        return power
    raise Inexpressible(
        f"kernel {kind} of degree {degree:g} cannot be expressed in ONNX's standard operators", ORT_ONLY
    )


def _pairs(node: ir.Node, per_class: list[int]) -> tuple[Array, Array, Array]:
    """Return the weights [vectors, pairs], and masks of the first and of the second class of each pair,
    [pairs, classes].

    Row j - 1 of libsvm's coefficients has, for the vectors of class i < j, those against class j; row i has,
    for the vectors of class j, those against class i.
    """
    classes, vectors = len(per_class), sum(per_class)
    table = floats_of(node, "coefficients").reshape(classes - 1, vectors)
    ends = np.cumsum([0, *per_class])
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    weights = np.zeros((vectors, len(pairs)), np.float32)
    firsts, seconds = (np.zeros((len(pairs), classes), np.float32) for _ in range(2))
    for number, (i, j) in enumerate(pairs):
        weights[ends[i] : ends[i + 1], number] = table[j - 1, ends[i] : ends[i + 1]]
        weights[ends[j] : ends[j + 1], number] = table[i, ends[j] : ends[j + 1]]
        firsts[number, i] = seconds[number, j] = 1
    return weights, firsts, seconds
