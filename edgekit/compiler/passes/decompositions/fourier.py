"""Decomposes DFT and STFT into products with cosines and sines.

Source: ONNX's DFT-20 and STFT-17. Angles are reduced to one turn before their cosine is taken, in float64.
"""

from __future__ import annotations

from math import prod

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.compiler.model.rewriting import array_of, dims_of, input_of, int_of
from edgekit.compiler.passes.decompositions.tape import Tape, decomposes
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array

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
