"""Decomposes Det into sums of products."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.compiler.model.rewriting import dims_of
from edgekit.compiler.passes.decompositions.tape import Tape, decomposes

MOST_ROWS = 5
"""Most rows: n rows give n * 2^(n-1) products, and the missing pivoting loses precision."""


@decomposes("Det")
def det(node: ir.Node) -> onnx.GraphProto | None:
    """Expand Det by Laplace, row by row: the determinants of the last k rows for each choice of k columns."""
    dims = dims_of(node.inputs[0])
    if dims is None or len(dims) < 2 or dims[-1] != dims[-2] or not 1 <= dims[-1] <= MOST_ROWS:
        return None
    tape, size = Tape(node), dims[-1]
    rows = [tape("Gather", "i0", np.array(row, np.int64), axis=-2) for row in range(size)]
    cells = [[tape("Gather", row, np.array(k, np.int64), axis=-1) for k in range(size)] for row in rows]
    minors: dict[tuple[int, ...], str] = {(k,): cells[-1][k] for k in range(size)}
    for row in reversed(range(size - 1)):
        larger = {}
        for columns in combinations(range(size), size - row):
            minor = ""
            for index, column in enumerate(columns):
                rest = tuple(c for c in columns if c != column)
                product = tape("Mul", cells[row][column], minors[rest])
                minor = product if not minor else tape("Sub" if index % 2 else "Add", minor, product)
            larger[columns] = minor
        minors = larger
    (result,) = minors.values()
    return tape.body(result)
