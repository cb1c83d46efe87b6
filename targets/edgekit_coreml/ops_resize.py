"""Resize: Core ML's own operators where they compute the same, else products with constant matrices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.compiler.lowering.resize_arguments import inside_of_image, repetition, resized_axes
from edgekit.compiler.model.resize_matrix import ResizeAxis
from edgekit.tensor_spec import Array
from edgekit_coreml.builder import Builder, Value, lower
from edgekit_coreml.ops_index import gather
from edgekit_coreml.ops_logic import select
from edgekit_coreml.ops_matmul import dense


@lower("Resize", since=13)
def resize(
    b: Builder,
    X: Value,
    roi: Value | None = None,
    scales: Value | None = None,
    sizes: Value | None = None,
    *,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Value:
    """Resize in every mode, coordinate transformation and axis; the usual cases take one operator."""
    crops = coordinate_transformation_mode == "tf_crop_and_resize"
    lines = resized_axes(
        X.shape, b.out_shape(), roi, scales, sizes, axes=axes, mode=mode,
        coordinate_transformation_mode=coordinate_transformation_mode,
        keep_aspect_ratio_policy=keep_aspect_ratio_policy,
    )  # fmt: skip
    changed = [a for a in range(X.rank) if not lines[a].is_identity]
    if not changed:
        return X
    if mode == "nearest":
        picked = _nearest(b, X, lines, changed, nearest_mode)
        return _cropped(b, picked, lines, extrapolation_value) if crops else picked
    shrinks = min(line.factor for line in lines) < 1
    if mode == "linear" and X.is_float and not (antialias and shrinks) and not exclude_outside and not crops:
        resized = _bilinear(b, X, b.out_shape(), lines, changed)
        if resized is not None:
            return resized
    out = X
    for axis in changed:
        matrix = lines[axis].matrix(mode, cubic_coeff_a, bool(antialias), bool(exclude_outside), 0.0)
        out = along(b, out, axis, matrix)
    return _cropped(b, out, lines, extrapolation_value) if crops and extrapolation_value else out


def _cropped(b: Builder, x: Value, lines: Sequence[ResizeAxis], value: float) -> Value:
    """Put ``value`` at points that are outside the image along any axis."""
    is_inside = inside_of_image(lines)
    if is_inside.all():
        return x
    return select(b, b.constant(is_inside), x, b.constant(np.array(value, np.dtype(x.dtype))))


def along(b: Builder, x: Value, axis: int, matrix: Array) -> Value:
    """Multiply ``x`` by ``matrix`` along one axis."""
    order = (*(a for a in range(x.rank) if a != axis), axis)
    product = dense(b, b.transpose(x, order), b.constant(matrix), None)
    return b.transpose(product, tuple(order.index(a) for a in range(x.rank)))


def _nearest(
    b: Builder, x: Value, lines: Sequence[ResizeAxis], changed: Sequence[int], nearest_mode: str
) -> Value:
    """Emit upsample_nearest_neighbor where each element is repeated, else gather."""
    times = [1] * x.rank
    for axis in changed:
        line = lines[axis]
        picked = line.indices(nearest_mode)
        repeated = repetition(picked, line.size)
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


def _bilinear(
    b: Builder, x: Value, shape: tuple[int, ...], lines: Sequence[ResizeAxis], changed: Sequence[int]
) -> Value | None:
    """Emit resize_bilinear if its coordinates match the node's; return None otherwise."""
    if x.rank not in (3, 4) or not set(changed) <= set(range(2, x.rank)):
        return None
    for mode in ("UNALIGN_CORNERS", "STRICT_ALIGN_CORNERS", "DEFAULT"):
        if all(
            _same_place(lines[a].coordinates, _positions(lines[a].size, lines[a].out, mode), lines[a].size)
            for a in changed
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
