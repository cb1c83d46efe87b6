"""Decomposes Einsum (sums over letters of one operand only, then pairwise products), Det, and DFT and STFT
into products with cosines and sines.

Source of the transforms: ONNX's DFT-20 and STFT-17. Angles are reduced to one turn before their cosine is
taken, in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import prod
from string import ascii_letters

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.compiler.model.rewriting import array_of, dims_of, input_of, int_of, text_of
from edgekit.compiler.passes.decompositions.tape import Tape, decomposes
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array

KINDS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.INT32, ir.DataType.INT64)
"""Element types that MatMul and ReduceSum support."""


@decomposes("Einsum")
def einsum(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose Einsum with any number of operands, diagonals and ellipses. Letters in both operands and the
    result are batched.

    "bqhd,bkhd->bhqk": Transpose to b h q d and b h d k -> MatMul -> b h q k
    "bi,bj->bij":      Transpose, Reshape to b i 1 and b 1 j -> Mul
    "bi,bi->b":        Mul, ReduceSum
    "iij->j":          Mul with the diagonal of i i, ReduceSum
    """
    kind = node.inputs[0].dtype if node.inputs and node.inputs[0] is not None else None
    shapes = [dims_of(value) for value in node.inputs]
    static_shapes = [dims for dims in shapes if dims is not None]
    if kind not in KINDS or len(static_shapes) != len(shapes):
        return None
    parsed = _parsed(text_of(node, "equation", ""), [len(dims) for dims in static_shapes])
    if parsed is None:
        return None
    terms, result = parsed
    sizes: dict[str, int] = {}
    for term, dims in zip(terms, static_shapes, strict=True):
        for letter, size in zip(term, dims, strict=True):
            sizes[letter] = size if sizes.get(letter, 1) == 1 else sizes[letter]
    tape = Tape(node)
    operands = [
        _plain(tape, f"i{k}", term, dims, sizes, kind)
        for k, (term, dims) in enumerate(zip(terms, static_shapes, strict=True))
    ]
    product_so_far, letters = operands[0]
    for index, (other, named) in enumerate(operands[1:], 2):
        needed = set(result).union(*(later for _, later in operands[index:]))
        product_so_far, letters = _product(tape, (product_so_far, letters), (other, named), needed, sizes)
    product_so_far, letters = _summed(tape, product_so_far, letters, set(result))
    if set(letters) != set(result):
        return None  # a letter of the result has size 1 in one operand and is in no other
    return tape.body(_ordered(tape, product_so_far, letters, result))


def _parsed(equation: str, ranks: Sequence[int]) -> tuple[list[str], str] | None:
    """Return the letters of each operand and of the result; an ellipsis as letters that are not used."""
    left, arrow, result = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    free = [letter for letter in ascii_letters if letter not in equation]
    hidden = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=False)]
    max_rank = max((n for n, term in zip(hidden, terms, strict=False) if "..." in term), default=0)
    if len(terms) != len(ranks) or max_rank > len(free) or min(hidden) < 0:
        return None
    dots = "".join(free[:max_rank])
    if not arrow:
        once = sorted(c for c in set(left) if c.isalpha() and left.count(c) == 1)
        result = ("..." if "..." in left else "") + "".join(once)
    terms = [t.replace("...", dots[max_rank - n :]) for t, n in zip(terms, hidden, strict=True)]
    result = result.replace("...", dots)
    fits = all(len(term) == rank for term, rank in zip(terms, ranks, strict=True))
    return (terms, result) if fits and set(result) <= set("".join(terms)) else None


def _plain(
    tape: Tape, x: str, term: str, dims: Sequence[int], sizes: dict[str, int], kind: ir.DataType
) -> tuple[str, str]:
    """Return an operand whose letters are distinct, without those of size 1 that are larger elsewhere."""
    while repeated := next((c for c in term if term.count(c) > 1), ""):
        first = term.index(repeated)
        second = term.index(repeated, first + 1)
        size = dims[first]
        shape = [size if axis in (first, second) else 1 for axis in range(len(term))]
        diagonal = np.eye(size, dtype=kind.numpy()).reshape(shape)
        x = tape("ReduceSum", tape("Mul", x, diagonal), np.array([second], np.int64), keepdims=0)
        term = term[:second] + term[second + 1 :]
        dims = [*dims[:second], *dims[second + 1 :]]
    thin = [axis for axis, c in enumerate(term) if dims[axis] == 1 != sizes[c]]
    if thin:
        x = tape("Squeeze", x, np.array(thin, np.int64))
    return x, "".join(c for axis, c in enumerate(term) if axis not in thin)


def _summed(tape: Tape, x: str, letters: str, needed: set[str]) -> tuple[str, str]:
    gone = [axis for axis, c in enumerate(letters) if c not in needed]
    if gone:
        x = tape("ReduceSum", x, np.array(gone, np.int64), keepdims=0)
    return x, "".join(c for c in letters if c in needed)


def _ordered(tape: Tape, x: str, letters: str, order: str) -> str:
    return x if letters == order else tape("Transpose", x, perm=[letters.index(c) for c in order])


def _product(
    tape: Tape, left: tuple[str, str], right: tuple[str, str], needed: set[str], sizes: dict[str, int]
) -> tuple[str, str]:
    """Return the product of two operands, summed over shared letters that are not needed later."""
    x, first = _summed(tape, *left, needed | set(right[1]))
    y, second = _summed(tape, *right, needed | set(first))
    both = [c for c in first if c in second]
    batch, inner = "".join(c for c in both if c in needed), "".join(c for c in both if c not in needed)
    rows = "".join(c for c in first if c not in second)
    columns = "".join(c for c in second if c not in first)
    if not rows and not columns:
        products = tape(
            "Mul", _ordered(tape, x, first, batch + inner), _ordered(tape, y, second, batch + inner)
        )
        return _summed(tape, products, batch + inner, set(batch))

    def matrix(value: str, letters: str, groups: tuple[str, str]) -> str:
        ordered = _ordered(tape, value, letters, batch + "".join(groups))
        lengths = [prod(sizes[c] for c in group) for group in groups]
        if all(len(group) == 1 for group in groups) and len(batch) <= 2:
            return ordered
        ahead = [sizes[c] for c in batch] if len(batch) <= 2 else [prod(sizes[c] for c in batch)]
        return tape.reshape(ordered, [*ahead, *lengths])

    op = "MatMul" if inner else "Mul"
    product_so_far = tape(op, matrix(x, first, (rows, inner)), matrix(y, second, (inner, columns)))
    letters = batch + rows + columns
    if len(rows) != 1 or len(columns) != 1 or len(batch) > 2:
        product_so_far = tape.reshape(product_so_far, [sizes[c] for c in letters])
    return product_so_far, letters


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


TRANSFORMS = ("DFT", "STFT")
MOST_NUMBERS = 2**23
"""Most cosines and sines of one op: 32 MB as float32, a DFT of 1,448 complex numbers."""


def is_inexact(node: ir.Node) -> bool:
    """Return whether ONNX Runtime's kernel for a node in canonical form loses precision: a DFT or STFT whose
    length is not a power of two has less than 100 dB (1.32; tests/compiler/passes/test_fourier.py)."""
    if node.domain or node.op_type not in TRANSFORMS:
        return False
    dims, window = dims_of(node.inputs[0]) or (), dims_of(input_of(node, 2)) or ()
    if node.op_type == "DFT":
        axis = _number(node, 2, -2)
        is_known = axis is not None and -len(dims) <= axis < len(dims)
        length = _number(node, 1, dims[axis or 0] if is_known else 0) or 0
    else:
        length = _number(node, 3, window[0] if window else 0) or 0
    return length & (length - 1) != 0


@decomposes("DFT")
def dft(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose DFT along one axis into a MatMul: real and imaginary parts lie next to each other."""
    x, dims, out = node.inputs[0], dims_of(node.inputs[0]), dims_of(node.outputs[0])
    inverse = bool(int_of(node, "inverse", 0))
    if x is None or x.dtype is None or dims is None or out is None or 0 in dims or len(dims) < 2:
        return None
    axis, length = _number(node, 2, -2), _number(node, 1, 0)
    if axis is None or length is None or dims[-1] > 2 or (inverse and int_of(node, "onesided", 0)):
        return None
    axis %= len(dims)
    if axis == len(dims) - 1:
        return None
    rows, bins = min(dims[axis], length or dims[axis]), out[axis]
    basis = _basis(node, length or dims[axis], (rows, dims[-1], bins), inverse)
    others = [k for k in range(len(dims) - 1) if k != axis]
    order = [*others, axis, len(dims) - 1]
    tape = Tape(node)
    data = "i0" if rows == dims[axis] else tape.part("i0", axis, 0, rows)
    columns = tape("Transpose", data, perm=order)
    outer = [dims[k] for k in others]
    matrix = tape.reshape(columns, (prod(outer), rows * dims[-1]))
    product = tape("MatMul", matrix, basis.reshape(rows * dims[-1], bins * 2).astype(x.dtype.numpy()))
    back = [int(place) for place in np.argsort(order)]
    return tape.body(tape("Transpose", tape.reshape(product, (*outer, bins, 2)), perm=back))


@decomposes("STFT")
def stft(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose STFT into a Conv: its weights are the window's cosines and sines, its stride the step."""
    x, dims, out = node.inputs[0], dims_of(node.inputs[0]), dims_of(node.outputs[0])
    window, step = array_of(input_of(node, 2)), _number(node, 1, 0)
    if x is None or x.dtype is None or dims is None or out is None or len(dims) != 3 or not step or 0 in out:
        return None
    if window is None and input_of(node, 2) is not None:
        return None
    length = _number(node, 3, 0 if window is None else len(window))
    if not length or (window is not None and window.shape != (length,)):
        return None
    parts, bins = dims[2], out[2]
    basis = _basis(node, length, (length, parts, bins), inverse=False)
    if window is not None:
        basis = basis * window.astype(np.float64)[:, None, None, None]
    weights = basis.transpose(2, 3, 1, 0).reshape(bins * 2, parts, length)
    tape = Tape(node)
    signal = tape("Transpose", "i0", perm=[0, 2, 1])
    spectrum = tape("Conv", signal, weights.astype(x.dtype.numpy()), strides=[step])
    return tape.body(tape.reshape(tape("Transpose", spectrum, perm=[0, 2, 1]), out))


def _number(node: ir.Node, index: int, default: int) -> int | None:
    value = input_of(node, index)
    array = array_of(value)
    if value is None:
        return default
    return None if array is None or array.size != 1 else int(array.reshape(()))


def _basis(node: ir.Node, length: int, shape: tuple[int, int, int], inverse: bool) -> Array:
    """Return float64[rows, parts, bins, 2]: what the real, and the imaginary, part of a number adds to the
    real and imaginary part of each bin.
    """
    rows, parts, bins = shape
    if 2 * rows * parts * bins > MOST_NUMBERS:
        raise Inexpressible(
            f"{node.op_type} of {length} numbers would be written out as {2 * rows * parts * bins:,} "
            f"weights; the limit is {MOST_NUMBERS:,}",
            "build it for ort, or cut the model behind it and compute the transform in the app",
        )
    turns = np.outer(np.arange(rows), np.arange(bins)) % length / length
    cosines, sines = np.cos(2 * np.pi * turns), (1 if inverse else -1) * np.sin(2 * np.pi * turns)
    of_real, of_imaginary = np.stack([cosines, sines], -1), np.stack([-sines, cosines], -1)
    basis = np.stack([of_real, of_imaginary][:parts], 1)
    return basis / length if inverse else basis
