"""Decomposes ops of ai.onnx.ml on numeric tables: selected columns, thresholds, scaling, missing
values; and TfIdfVectorizer."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.compiler.model.ml_shapes import ML_DOMAIN
from edgekit.compiler.model.rewriting import dims_of, float_of, int_of, ints_of, text_of
from edgekit.compiler.passes.decompositions.tape import Tape, decomposes
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array

FLOAT = int(ir.DataType.FLOAT)


@decomposes("ArrayFeatureExtractor", domain=ML_DOMAIN)
def array_feature_extractor(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose ArrayFeatureExtractor: Gather along the last axis; a vector becomes a row."""
    result = dims_of(node.outputs[0])
    if result is None:
        return None
    tape = Tape(node)
    read = tape("Gather", "i0", tape.reshape("i1", (-1,)), axis=-1)
    return tape.body(tape.reshape(read, result))


@decomposes("Binarizer", domain=ML_DOMAIN)
def binarizer(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose Binarizer: 1 above the threshold, else 0."""
    x = node.inputs[0]
    if x is None or x.dtype is None:
        return None
    tape = Tape(node)
    above = tape("Greater", "i0", np.array(float_of(node, "threshold", 0.0), x.dtype.numpy()))
    return tape.body(tape("Cast", above, to=int(x.dtype)))


@decomposes("Scaler", domain=ML_DOMAIN)
def scaler(node: ir.Node) -> onnx.GraphProto:
    """Decompose Scaler: (x - offset) * scale, in float32."""
    tape = Tape(node)
    result = tape("Cast", "i0", to=FLOAT)
    for op, name in (("Sub", "offset"), ("Mul", "scale")):
        if name in node.attributes:
            result = tape(op, result, np.array(node.attributes[name].as_floats(), np.float32))
    return tape.body(result)


@decomposes("Normalizer", domain=ML_DOMAIN)
def normalizer(node: ir.Node) -> onnx.GraphProto:
    """Decompose Normalizer: divide each row by its largest number, the sum of its absolute numbers, or its L2
    norm. Rows where that is 0 are unchanged."""
    tape = Tape(node)
    x = tape("Cast", "i0", to=FLOAT)
    last = np.array([-1], np.int64)
    norm = text_of(node, "norm", "MAX")
    if norm == "MAX":
        size = tape("ReduceMax", x, last)
    elif norm == "L1":
        size = tape("ReduceSum", tape("Abs", x), last)
    elif norm == "L2":
        size = tape("Sqrt", tape("ReduceSumSquare", x, last))
    else:
        raise Inexpressible(f"norm {norm} is not one of MAX, L1, L2")
    nothing = tape("Equal", size, np.zeros((), np.float32))
    return tape.body(tape("Div", x, tape("Where", nothing, np.ones((), np.float32), size)))


@decomposes("Imputer", domain=ML_DOMAIN)
def imputer(node: ir.Node) -> onnx.GraphProto | None:
    """Replace missing numbers (NaN, or one number that stands for them), column by column."""
    x = node.inputs[0]
    if x is None or x.dtype is None:
        return None
    tape = Tape(node)
    if x.dtype.is_floating_point():
        missing = float_of(node, "replaced_value_float", 0.0)
        new = np.array(node.attributes["imputed_value_floats"].as_floats(), x.dtype.numpy())
    else:
        missing = int_of(node, "replaced_value_int64", 0)
        new = np.array(node.attributes["imputed_value_int64s"].as_ints(), x.dtype.numpy())
    if missing != missing:
        absent = tape("IsNaN", "i0")
    else:
        absent = tape("Equal", "i0", np.array(missing, x.dtype.numpy()))
    return tape.body(tape("Where", absent, new, "i0"))


@decomposes("LabelEncoder", domain=ML_DOMAIN)
def label_encoder(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose LabelEncoder: the value of the first equal key, else the default.

    in: x -> x[..., None] == keys -> first match -> Gather(values with the default behind them)
    """
    x = node.inputs[0]
    if x is None or x.dtype not in _KEYS or f"keys_{_KEYS[x.dtype]}" not in node.attributes:
        raise Inexpressible("reads or writes strings", "encode them as integers before the model")
    keys = np.array(node.attributes[f"keys_{_KEYS[x.dtype]}"].value, x.dtype.numpy())
    if len(keys) > MOST_KEYS:
        raise Inexpressible(f"has {len(keys)} keys; at most {MOST_KEYS} are supported", "build it for ort")
    if "values_int64s" in node.attributes:
        values = [*node.attributes["values_int64s"].as_ints(), int_of(node, "default_int64", -1)]
        table = np.array(values, np.int64)
    elif "values_floats" in node.attributes:
        numbers = [*node.attributes["values_floats"].as_floats(), float_of(node, "default_float", -0.0)]
        table = np.array(numbers, np.float32)
    else:
        raise Inexpressible("reads or writes strings", "encode them as integers before the model")
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        raise Inexpressible("NaN is one of its keys", "build it for ort")
    tape = Tape(node)
    matches = tape("Equal", tape("Unsqueeze", "i0", np.array([-1], np.int64)), keys)
    # A column of ones behind: the first of the equal ones is the default's if no key is.
    ranks = np.arange(len(keys), 0, -1, dtype=np.float32)
    best = tape(
        "ReduceMax", tape("Mul", tape("Cast", matches, to=FLOAT), ranks), np.array([-1], np.int64), keepdims=0
    )
    place = tape("Cast", tape("Sub", np.array(len(keys), np.float32), best), to=int(ir.DataType.INT64))
    return tape.body(tape("Gather", table, place))


MOST_KEYS = 4096
"""Most keys of a LabelEncoder that is written out: each element is compared with all of them."""

_KEYS = {ir.DataType.INT64: "int64s", ir.DataType.FLOAT: "floats"}


MOST_COMPARISONS = 2**22
"""Most windows times n-grams of one comparison."""


@decomposes("TfIdfVectorizer")
def tfidf(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose TfIdfVectorizer: for each length and skip, compare all windows with all grams (Equal, And,
    ReduceSum), then apply the weights.

    A gram of n words with skip s is read at i, i + s + 1, i + 2 (s + 1) ...; single words have no skip.
    """
    x, dims = node.inputs[0], dims_of(node.inputs[0])
    if x is None or x.dtype is None or x.dtype == ir.DataType.STRING or dims is None or 0 in dims:
        return None
    batch, length = (1, *dims)[-2:]
    pool, starts = ints_of(node, "pool_int64s"), ints_of(node, "ngram_counts")
    indices = ints_of(node, "ngram_indexes")
    grams = {
        n: np.array(pool[start:stop], x.dtype.numpy()).reshape(-1, n)
        for n, (start, stop) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1)
    }
    if len(set(indices)) != len(indices) or length * len(indices) > MOST_COMPARISONS:
        return None
    tape = Tape(node)
    rows = tape.reshape("i0", (batch, length, 1))
    max_length, skips = int_of(node, "max_gram_length", 1), int_of(node, "max_skip_count", 0)
    counted = []
    for n, words in grams.items():
        if not len(words):
            continue
        counts = [tape.constant(np.zeros((batch, len(words)), np.float32))]
        if int_of(node, "min_gram_length", 1) <= n <= max_length:
            counts += [
                _count(tape, rows, length, words, skip + 1)
                for skip in range(skips + 1 if n > 1 else 1)
                if length > (n - 1) * (skip + 1)
            ]
        counted.append(tape.total(counts))
    weights = np.array(
        node.attributes["weights"].as_floats() if "weights" in node.attributes else [1.0] * len(indices),
        np.float32,
    )
    values = tape("Concat", *counted, axis=1)
    mode = text_of(node, "mode", "TF")
    if mode == "IDF":
        is_present = tape("Greater", values, np.array(0, np.float32))
        values = tape("Cast", is_present, to=int(ir.DataType.FLOAT))
    if mode != "TF":
        values = tape("Mul", values, weights)
    return tape.body(tape.reshape(_placed(tape, values, indices), (*dims[:-1], max(indices) + 1)))


def _count(tape: Tape, rows: str, length: int, words: Array, stride: int) -> str:
    """Count the occurrences of each gram in each row, its words ``stride`` apart: [batch, grams]."""
    size = words.shape[1]
    windows = length - (size - 1) * stride
    same = ""
    for index in range(size):
        part = tape.part(rows, 1, index * stride, index * stride + windows)
        equal = tape("Equal", part, words[:, index].reshape(1, 1, -1))
        same = equal if not same else tape("And", same, equal)
    number = tape("Cast", same, to=int(ir.DataType.FLOAT))
    return tape("ReduceSum", number, np.array([1], np.int64), keepdims=0)


def _placed(tape: Tape, values: str, indices: list[int]) -> str:
    """Move column k of the values to column ``indices[k]``; other columns are zero."""
    order = np.full(max(indices) + 1, len(indices), np.int64)
    order[indices] = np.arange(len(indices))
    ended = tape("Pad", values, np.array([0, 0, 0, 1], np.int64))
    return tape("Gather", ended, order, axis=1)
