"""Resize, and GridSample."""

from __future__ import annotations

import numpy as np

from edgekit.compiler.lowering.resize_arguments import Resizing, repetition
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array
from edgekit_ncnn.builder import Builder, Value, lower
from edgekit_ncnn.ops_matmul import multiplied
from edgekit_ncnn.ops_shape import picked

TYPES = {"nearest": 1, "linear": 2, "cubic": 3}
"""Resize types of Interp."""
CUBIC_A = -0.75


@lower("Resize", since=19)
def resize(b: Builder, X: Value, *, resizing: Resizing) -> Value:
    """Emit Interp if its points are the node's, else Crops or products with constant matrices."""
    out, mode, changed = b.out_shape(), resizing.mode, resizing.changed
    odd_cubic = mode == "cubic" and abs(resizing.cubic_coeff_a - CUBIC_A) > 1e-6
    odd = resizing.crops or resizing.smooths or resizing.exclude_outside or odd_cubic
    if changed and X.rank == 4 and X.shape[0] == 1 and set(changed) <= {2, 3} and not odd:
        for corners in (0, 1):
            if all(_is_interp(resizing, axis, corners) for axis in changed):
                stored = out[1:]
                params = {0: TYPES[mode], 3: out[2], 4: out[3], 6: corners}
                return b.reshape(b.emit("Interp", [b.blob(X, X.shape[1:])], stored, params), out)
    resized = X
    for axis in changed:
        if mode == "nearest" and resizing.crops:
            raise Inexpressible("tf_crop_and_resize takes the nearest point, which ncnn can't")
        if mode == "nearest":
            resized = picked(b, resized, axis, resizing.indices(axis))
            continue
        resized = by_matrix(b, resized, axis, resizing.matrix(axis, resizing.extrapolation_value))
    return resized


def _is_interp(resizing: Resizing, axis: int, corners: int) -> bool:
    """Compare the points of one axis with those of Interp: src/layer/interp.cpp."""
    line, mode = resizing.lines[axis], resizing.mode
    if mode == "nearest":
        return not corners and repetition(resizing.indices(axis), line.size) == line.out / line.size
    if line.size < 2 or line.out < 2 or (mode == "cubic" and line.size < 4):
        return False
    i = np.arange(line.out)
    points = i * ((line.size - 1) / (line.out - 1)) if corners else (i + 0.5) * (line.size / line.out) - 0.5
    return bool(np.allclose(points, line.coordinates, rtol=0, atol=1e-6))


def by_matrix(b: Builder, x: Value, axis: int, matrix: Array) -> Value:
    """Multiply an axis by a constant matrix of shape (out, in)."""
    outer, inner = x.shape[:axis], x.shape[axis + 1 :]
    rows = b.reshape(x, (int(np.prod(outer)), x.shape[axis], int(np.prod(inner))))
    product = multiplied(b, b.constant(matrix), rows)
    return b.reshape(product, (*outer, matrix.shape[0], *inner))


SAMPLE_TYPES = {"linear": 1, "nearest": 2, "cubic": 3}
"""src/layer/gridsample.h; the documentation has other numbers."""
PADDING_MODES = {"zeros": 1, "border": 2, "reflection": 3}


@lower("GridSample", since=20)
def grid_sample(
    b: Builder,
    X: Value,
    grid: Value,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Value:
    """GridSample."""
    if X.shape[0] != 1 or X.rank not in (4, 5) or mode == "nearest":
        raise Inexpressible("ncnn's GridSample has one image; EdgeKit uses it for linear and cubic")
    if padding_mode == "reflection":
        raise Inexpressible("ncnn's GridSample reflects at other points than ONNX's")
    stored = b.out_shape()[1:]
    params = {0: SAMPLE_TYPES[mode], 1: PADDING_MODES[padding_mode], 2: align_corners}
    names = [b.blob(X, X.shape[1:]), b.blob(grid, grid.shape[1:])]
    return b.reshape(b.emit("GridSample", names, stored, params), b.out_shape())
