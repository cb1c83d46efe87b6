"""Decomposes TfIdfVectorizer: compares n-grams with a vocabulary and counts them."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.compiler.model.rewriting import dims_of, int_of, ints_of, text_of
from edgekit.compiler.passes.decompositions.tape import Tape, decomposes
from edgekit.tensor_spec import Array

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
