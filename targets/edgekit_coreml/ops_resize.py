"""Resize: Core ML's own operators if they compute the same, else products with constant matrices."""

from __future__ import annotations

import numpy as np

from edgekit.compiler.lowering.resize_arguments import Resizing, repetition
from edgekit.tensor_spec import Array
from edgekit_coreml.builder import Builder, Value, lower
from edgekit_coreml.ops_index import gather
from edgekit_coreml.ops_logic import select
from edgekit_coreml.ops_matmul import dense


@lower("Resize", since=13)
def resize(b: Builder, X: Value, *, resizing: Resizing) -> Value:
    """Resize in every mode, coordinate transformation and axis; the usual cases take one operator."""
    if not resizing.changed:
        return X
    if resizing.mode == "nearest":
        return _cropped(b, _nearest(b, X, resizing), resizing)
    plain = resizing.mode == "linear" and not resizing.smooths and not resizing.exclude_outside
    if plain and X.is_float and not resizing.crops:
        resized = _bilinear(b, X, b.out_shape(), resizing)
        if resized is not None:
            return resized
    out = X
    for axis in resizing.changed:
        out = along(b, out, axis, resizing.matrix(axis))
    return _cropped(b, out, resizing) if resizing.extrapolation_value else out


def _cropped(b: Builder, x: Value, resizing: Resizing) -> Value:
    """Put the extrapolation value at points that are outside the image along any axis."""
    is_inside = resizing.is_inside
    if is_inside.all():
        return x
    value = b.constant(np.array(resizing.extrapolation_value, np.dtype(x.dtype)))
    return select(b, b.constant(is_inside), x, value)


def along(b: Builder, x: Value, axis: int, matrix: Array) -> Value:
    """Multiply ``x`` by ``matrix`` along one axis."""
    order = (*(a for a in range(x.rank) if a != axis), axis)
    product = dense(b, b.transpose(x, order), b.constant(matrix), None)
    return b.transpose(product, tuple(order.index(a) for a in range(x.rank)))


def _nearest(b: Builder, x: Value, resizing: Resizing) -> Value:
    """Emit upsample_nearest_neighbor if each element is repeated, else gather."""
    times = [1] * x.rank
    for axis in resizing.changed:
        picked = resizing.indices(axis)
        repeated = repetition(picked, x.shape[axis])
        times[axis] = repeated or 1
        if repeated is None:
            x = gather(b, x, b.constant(picked), axis=axis)
    if x.rank == 4 and x.is_float and times[:2] == [1, 1] and max(times) > 1:
        return b.emit(
            "upsample_nearest_neighbor", x=x, scale_factor_height=times[2], scale_factor_width=times[3]
        )
    for axis, count in enumerate(times):
        if count > 1:
            x = gather(b, x, b.constant(np.repeat(np.arange(x.shape[axis]), count)), axis=axis)
    return x


def _bilinear(b: Builder, x: Value, shape: tuple[int, ...], resizing: Resizing) -> Value | None:
    """Emit resize_bilinear if its coordinates match the node's; return None otherwise."""
    if x.rank not in (3, 4) or not set(resizing.changed) <= set(range(2, x.rank)):
        return None
    for mode in ("UNALIGN_CORNERS", "STRICT_ALIGN_CORNERS", "DEFAULT"):
        if all(
            _same_place(line.coordinates, _positions(line.size, line.out, mode), line.size)
            for line in (resizing.lines[axis] for axis in resizing.changed)
        ):
            flat = x if x.rank == 4 else b.reshape(x, (*x.shape[:2], 1, x.shape[2]))
            height, width = (shape[2], shape[3]) if x.rank == 4 else (1, shape[2])
            out = b.emit(
                "resize_bilinear", x=flat, target_size_height=height, target_size_width=width,
                sampling_mode=mode,
            )  # fmt: skip
            return b.reshape(out, shape)
    return None


def _positions(size: int, out: int, mode: str) -> Array:
    """Compute resize_bilinear's input positions, by coremltools' reference of iOS15.resize_bilinear."""
    i = np.arange(out)
    if mode == "UNALIGN_CORNERS":
        return (i + 0.5) * (size / out) - 0.5
    if mode == "STRICT_ALIGN_CORNERS":
        return i * ((size - 1) / max(out - 1, 1))
    return i * ((size - size / out) / max(out - 1, 1))


def _same_place(node: Array, operator: Array, size: int) -> bool:
    """Compare positions clamped to the image: beyond an end both take the last element."""
    return bool(np.allclose(np.clip(node, 0, size - 1), np.clip(operator, 0, size - 1), atol=1e-9))
