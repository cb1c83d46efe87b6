"""Resize: TFLite's own operators where they compute the same, else products with constant matrices.

Every ONNX resize is separable and linear: along each axis the output is a constant matrix times the input. So
whatever a RESIZE operator has no form for (cubic, antialias, unusual coordinates) is still exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, floor

import numpy as np

from edgekit.lowering import Inexpressible
from edgekit.target import Array
from edgekit_tflite import layout
from edgekit_tflite.builder import Builder, Value, lower
from edgekit_tflite.layout import channels_last
from edgekit_tflite.ops_conv import spatial_2d
from edgekit_tflite.ops_index import gather
from edgekit_tflite.ops_matmul import dense
from edgekit_tflite.ops_reduce import constant_ints
from edgekit_tflite.ops_shape import CONCATENATION_INPUTS


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
    """Every mode, coordinate transformation and axis; the usual linear ones are one operator."""
    shape = b.out_shape()
    factors = [n / m for n, m in zip(shape, X.shape, strict=True)]
    over = list(axes or range(X.rank))
    if sizes is not None and keep_aspect_ratio_policy != "stretch":
        # One factor for all axes; the output's size is that factor's, rounded.
        ratios = [n / X.shape[axis] for axis, n in zip(over, constant_ints(sizes, "sizes"), strict=True)]
        for axis in over:
            factors[axis] = min(ratios) if keep_aspect_ratio_policy == "not_larger" else max(ratios)
    if scales is not None and scales.size:
        if scales.const is None:
            raise Inexpressible("its scales are computed by the model; they must be constant")
        for axis, factor in zip(over, scales.const, strict=True):
            factors[axis] = float(factor)
    crop = [(0.0, 1.0)] * X.rank
    if coordinate_transformation_mode == "tf_crop_and_resize":
        if roi is None or roi.const is None:
            raise Inexpressible("its roi is computed by the model; it must be constant")
        for place, axis in enumerate(over):
            crop[axis] = (float(roi.const[place]), float(roi.const[place + len(over)]))
    lines = [
        Line(n, m, f, coordinate_transformation_mode, *ends)
        for n, m, f, ends in zip(X.shape, shape, factors, crop, strict=True)
    ]
    changed = [a for a in range(X.rank) if not lines[a].is_identity]
    if not changed:
        return X
    if mode == "nearest":
        outside = extrapolation_value if coordinate_transformation_mode == "tf_crop_and_resize" else None
        return _nearest(b, X, lines, changed, nearest_mode, outside)
    spatial = X.rank in (3, 4) and set(changed) <= set(range(2, X.rank))
    if mode == "linear" and spatial and not (antialias and min(factors) < 1) and not exclude_outside:
        moved = _bilinear(b, X, shape, lines, changed)
        if moved is not None:
            return moved
    if mode not in ("linear", "cubic"):
        raise Inexpressible(f"mode {mode!r} is not one of nearest, linear, cubic")
    out = X
    for axis in changed:
        matrix = lines[axis].matrix(
            mode, cubic_coeff_a, bool(antialias), bool(exclude_outside), extrapolation_value
        )
        out = along(b, out, axis, matrix)
    return out


class Line:
    """One axis of a Resize: ``size`` elements become ``out``, at ``factor``.

    Formulas: ONNX's operator specification, Resize-19.
    """

    def __init__(
        self, size: int, out: int, factor: float, transformation: str, start: float, end: float
    ) -> None:
        self.size, self.out, self.factor, self.transformation = size, out, factor, transformation
        i = np.arange(out, dtype=np.float64)
        if transformation == "half_pixel":
            at = (i + 0.5) / factor - 0.5
        elif transformation == "half_pixel_symmetric":
            adjustment = out / (factor * size)
            at = size / 2 * (1 - adjustment) + (i + 0.5) / factor - 0.5
        elif transformation == "pytorch_half_pixel":
            at = (i + 0.5) / factor - 0.5 if out > 1 else np.zeros(out)
        elif transformation == "align_corners":
            at = i * (size - 1) / (out - 1) if out > 1 else np.zeros(out)
        elif transformation == "asymmetric":
            at = i / factor
        elif transformation == "tf_crop_and_resize":
            if out > 1:
                at = start * (size - 1) + i * (end - start) * (size - 1) / (out - 1)
            else:
                at = np.full(out, 0.5 * (start + end) * (size - 1))
        else:
            raise Inexpressible(f"coordinate_transformation_mode {transformation!r} is not known")
        self.at = at

    @property
    def is_identity(self) -> bool:
        return self.size == self.out and bool(np.array_equal(self.at, np.arange(self.out)))

    def indices(self, nearest_mode: str) -> Array:
        """Which input each output is, for mode nearest; int32, clipped to the input."""
        rounded: dict[str, Callable[[Array], Array]] = {
            "round_prefer_floor": lambda x: np.ceil(x - 0.5),
            "round_prefer_ceil": lambda x: np.floor(x + 0.5),
            "floor": np.floor,
            "ceil": np.ceil,
        }
        if nearest_mode not in rounded:
            raise Inexpressible(f"nearest_mode {nearest_mode!r} is not known")
        picked = np.clip(rounded[nearest_mode](self.at), 0, self.size - 1)
        return np.asarray(picked, np.int32)

    def matrix(
        self, mode: str, cubic_coeff_a: float, antialias: bool, exclude_outside: bool, extrapolation: float
    ) -> Array:
        """Shape (out, size), float32: output = matrix @ input."""
        stretch = min(self.factor, 1.0) if antialias else 1.0
        reach = (1.0 if mode == "linear" else 2.0) / stretch
        weights = np.zeros((self.out, self.size))
        crops = self.transformation == "tf_crop_and_resize"
        for row, at in enumerate(self.at):
            if crops and not 0 <= at <= self.size - 1:
                if extrapolation:
                    raise Inexpressible(
                        "extrapolation_value other than 0 outside of the image has no form in TFLite"
                    )
                continue
            near = np.arange(floor(at - reach), ceil(at + reach) + 1)
            distance = np.abs(near - at) * stretch
            share = np.maximum(1 - distance, 0) if mode == "linear" else _cubic(distance, cubic_coeff_a)
            inside = (near >= 0) & (near < self.size)
            if exclude_outside:
                share = share * inside
            if antialias or exclude_outside:
                share = share / share.sum()
            np.add.at(weights[row], np.clip(near, 0, self.size - 1), share)
        return weights.astype(np.float32)


def _cubic(distance: Array, a: float) -> Array:
    """Keys' kernel, as in the specification."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))


def along(b: Builder, x: Value, axis: int, matrix: Array) -> Value:
    """``matrix`` times ``x`` along one axis."""
    order = (*(a for a in range(x.rank) if a != axis), axis)
    product = dense(b, b.transpose(x, order), b.constant(matrix.T), None)
    return b.transpose(product, tuple(order.index(a) for a in range(x.rank)))


def _nearest(
    b: Builder,
    x: Value,
    lines: Sequence[Line],
    changed: Sequence[int],
    nearest_mode: str,
    outside: float | None,
) -> Value:
    for axis in changed:
        line = lines[axis]
        if outside is not None and not all(0 <= at <= line.size - 1 for at in line.at):
            raise Inexpressible("tf_crop_and_resize beyond the image has no nearest form in TFLite")
        picked = line.indices(nearest_mode)
        times = line.out // line.size
        if np.array_equal(picked, np.repeat(np.arange(line.size), max(times, 1))):
            x = repeated(b, x, axis, times)
        else:
            x = gather(b, x, b.constant(picked), axis=axis)
    return x


def repeated(b: Builder, x: Value, axis: int, times: int) -> Value:
    """Each element along ``axis`` ``times`` times in a row.

    The axis and all that is stored behind it is one block, which is joined to itself: a CONCATENATION, which
    XNNPACK takes; it takes neither RESIZE_NEAREST_NEIGHBOR nor TILE nor GATHER.
    """
    left = times
    while left > 1:
        some = next((n for n in range(CONCATENATION_INPUTS, 1, -1) if left % n == 0), left)
        left //= some
        place = x.perm.index(axis)
        stored = layout.physical(x.shape, x.perm)
        rows, block = int(np.prod(stored[: place + 1])), int(np.prod(stored[place + 1 :]))
        flat = b.view_as(x, (rows, block))
        out = b.new((rows, block * some), x.dtype, quantization=x.quantization)
        b.emit("CONCATENATION", [flat] * some, out, axis=1, fused_activation_function="NONE")
        shape = tuple(n * some if a == axis else n for a, n in enumerate(x.shape))
        x = b.stored_as(out, shape, x.perm)
    return x


def _bilinear(
    b: Builder, x: Value, shape: tuple[int, ...], lines: Sequence[Line], changed: Sequence[int]
) -> Value | None:
    """RESIZE_BILINEAR where its coordinates are those of the node, else None."""
    modes: dict[tuple[bool, bool], Callable[[int, int], Array]] = {
        (False, False): lambda n, m: np.arange(m) * (n / m),
        (True, False): lambda n, m: (np.arange(m) + 0.5) * (n / m) - 0.5,
        (False, True): lambda n, m: np.arange(m) * ((n - 1) / max(m - 1, 1)),
    }
    for (half_pixel, align), where in modes.items():
        # Below zero the kernels take the first element, whatever the distance is.
        if all(
            np.allclose(
                np.maximum(where(lines[a].size, lines[a].out), 0), np.maximum(lines[a].at, 0), atol=1e-9
            )
            for a in changed
        ):
            source = b.to(spatial_2d(b, x), channels_last(4))
            sizes = shape[2:] if x.rank == 4 else (1, *shape[2:])
            out = b.new((*x.shape[:2], *sizes), x.dtype, channels_last(4), x.quantization)
            b.emit(
                "RESIZE_BILINEAR", [source, b.ints(sizes)], out,
                half_pixel_centers=half_pixel, align_corners=align,
            )  # fmt: skip
            return out if x.rank == 4 else b.reshape(out, shape)
    return None
