"""Labels and post transforms, shared by the classifiers and regressors of ai.onnx.ml.

The formulas are those of ONNX Runtime's CPU kernels (core/providers/cpu/ml), the only implementation of the
domain; its specification leaves most of them open.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.compiler.model.rewriting import dims_of, ints_of, text_of
from edgekit.compiler.passes.decompositions.tape import Tape
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array

ORT_ONLY = "build it for ort"
FLOAT = int(ir.DataType.FLOAT)
INT64 = int(ir.DataType.INT64)


def rows_of(tape: Tape, node: ir.Node) -> tuple[str, int, int]:
    """Return the input as float32 rows, and the numbers of rows and columns.

    Raises:
        Inexpressible: the input is in double precision.
    """
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
    """Return the body that gives the label and both scores, transformed, from the score of the second class.

    Raises:
        Inexpressible: as ``post_transform``.
    """
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
