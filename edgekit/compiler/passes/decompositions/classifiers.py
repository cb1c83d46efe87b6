"""Decomposes linear models and support vector machines of ai.onnx.ml; labels and post transforms, which
trees.py shares.

The formulas are those of ONNX Runtime's CPU kernels (core/providers/cpu/ml), the only implementation of the
domain; its specification leaves most of them open.

LinearClassifier(x)  =>  scores = x @ coefficients.T + intercepts; label = labels[ArgMax(scores)]

SVMClassifier(x)  =>
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
from edgekit.compiler.model.rewriting import dims_of, int_of, ints_of, text_of
from edgekit.compiler.passes.decompositions.tape import Tape, decomposes
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array

ORT_ONLY = "build it for ort"
FLOAT = int(ir.DataType.FLOAT)
INT64 = int(ir.DataType.INT64)


def rows_of(tape: Tape, node: ir.Node) -> tuple[str, int, int]:
    """Return the input as float32 rows, and the numbers of rows and columns."""
    x = node.inputs[0]
    dims = dims_of(x)
    assert x is not None
    assert dims is not None
    if x.dtype == ir.DataType.DOUBLE:
        raise Inexpressible(
            "its input is in double precision", "convert the estimator with float32 inputs", "EK1004"
        )
    rows = 1 if len(dims) == 1 else dims[0]
    value = "i0" if x.dtype == ir.DataType.FLOAT else tape("Cast", "i0", to=FLOAT)
    return (value if len(dims) == 2 else tape.reshape(value, (rows, dims[-1]))), rows, dims[-1]


def labels_of(node: ir.Node) -> Array:
    """Return the integer labels of the classes; 0, 1, 2 ... if nothing reads them.

    Raises:
        Inexpressible: they are strings, and are read.
    """
    labels = ints_of(node, "classlabels_ints") or ints_of(node, "classlabels_int64s")
    if labels:
        return np.array(labels, np.int64)
    label = node.outputs[0]
    if label.uses() or label.is_graph_output():
        raise Inexpressible(
            "its labels are strings", "train it on integers, and put the class names into the card's labels"
        )
    return np.arange(len(node.attributes["classlabels_strings"].as_strings()), dtype=np.int64)


def best_label(tape: Tape, scores: str, labels: Array) -> str:
    """Return the label of the largest score of each row, the first of equal ones."""
    return tape("Gather", labels, tape("ArgMax", scores, axis=1, keepdims=0))


def label_above(tape: Tape, score: str, threshold: float, labels: Array, rows: int) -> str:
    """Return the second label where the score, one a row, is above the threshold, else the first."""
    above = tape("Greater", tape.reshape(score, (rows,)), np.array(threshold, np.float32))
    return tape("Gather", labels, tape("Cast", above, to=INT64))


def both_classes(tape: Tape, score: str, complement: str) -> str:
    """Return the scores of two classes from that of the second: ``complement`` is ``1 - s`` or ``-s``."""
    if complement == "1 - s":
        other = tape("Sub", np.array(1, np.float32), score)
    else:
        other = tape("Neg", score)
    return tape("Concat", other, score, axis=1)


def two_classes(tape: Tape, node: ir.Node, label: str, score: str, complement: str) -> onnx.GraphProto:
    """Return the body that gives the label and both transformed scores, from that of the second class."""
    kind = text_of(node, "post_transform", "NONE")
    if kind == "LOGISTIC":
        return tape.body(label, tape("Sigmoid", both_classes(tape, score, "-s")))
    if kind == "PROBIT":
        return tape.body(label, post_transform(tape, node, score))
    return tape.body(label, both_classes(tape, score, complement))


def floats_of(node: ir.Node, name: str) -> Array:
    """Return a list attribute of floats, float32; empty if it is absent."""
    return np.array(node.attributes[name].as_floats() if name in node.attributes else (), np.float32)


def post_transform(tape: Tape, node: ir.Node, scores: str) -> str:
    """Return the scores of more than one class, transformed.

    Raises:
        Inexpressible: PROBIT and SOFTMAX_ZERO, which no exporter of scikit-learn's models writes.
    """
    kind = text_of(node, "post_transform", "NONE")
    if kind == "NONE":
        return scores
    if kind == "LOGISTIC":
        return tape("Sigmoid", scores)
    if kind == "SOFTMAX":
        return tape("Softmax", scores, axis=1)
    raise Inexpressible(f"post_transform {kind} cannot be expressed in ONNX's standard operators", ORT_ONLY)


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
