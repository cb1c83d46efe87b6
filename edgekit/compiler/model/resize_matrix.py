"""ONNX's Resize as indices or a constant matrix for each axis.

Every ONNX resize is separable and linear. A target without an operator for one (cubic, antialias, unusual
coordinates) multiplies by the matrix, which is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, floor

import numpy as np

from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array


def resize_lines(
    before: Sequence[int],
    after: Sequence[int],
    axes: Sequence[int],
    transformation: str,
    policy: str,
    scales: Array | None,
    sizes: Array | None,
    roi: Array | None,
) -> list[ResizeAxis]:
    """Decode the axes of one Resize.

    Args:
        axes: The axes of scales, sizes and roi, in order.
        transformation: coordinate_transformation_mode.
        policy: keep_aspect_ratio_policy.
        roi: The node's input, or None; read by tf_crop_and_resize.
    """
    factors = [n / m for n, m in zip(after, before, strict=True)]
    if sizes is not None and sizes.size and policy != "stretch":
        # One factor for all axes; the output's size is that factor's, rounded.
        ratios = [float(n) / before[axis] for axis, n in zip(axes, sizes, strict=True)]
        for axis in axes:
            factors[axis] = min(ratios) if policy == "not_larger" else max(ratios)
    if scales is not None and scales.size:
        for axis, factor in zip(axes, scales, strict=True):
            factors[axis] = float(factor)
    crop = [(0.0, 1.0)] * len(before)
    if transformation == "tf_crop_and_resize" and roi is not None:
        for index, axis in enumerate(axes):
            crop[axis] = (float(roi[index]), float(roi[index + len(axes)]))
    return [
        ResizeAxis(n, m, factor, transformation, *ends)
        for n, m, factor, ends in zip(before, after, factors, crop, strict=True)
    ]


class ResizeAxis:
    """One axis of a Resize: ``size`` elements become ``out``, at ``factor``.

    Formulas: ONNX's operator specification, Resize-19.
    """

    def __init__(
        self, size: int, out: int, factor: float, transformation: str, start: float, end: float
    ) -> None:
        self.size, self.out, self.factor, self.transformation = size, out, factor, transformation
        i = np.arange(out, dtype=np.float64)
        if transformation == "half_pixel":
            positions = (i + 0.5) / factor - 0.5
        elif transformation == "half_pixel_symmetric":
            adjustment = out / (factor * size)
            positions = size / 2 * (1 - adjustment) + (i + 0.5) / factor - 0.5
        elif transformation == "pytorch_half_pixel":
            positions = (i + 0.5) / factor - 0.5 if out > 1 else np.zeros(out)
        elif transformation == "align_corners":
            positions = i * (size - 1) / (out - 1) if out > 1 else np.zeros(out)
        elif transformation == "asymmetric":
            positions = i / factor
        elif transformation == "tf_crop_and_resize":
            if out > 1:
                positions = start * (size - 1) + i * (end - start) * (size - 1) / (out - 1)
            else:
                positions = np.full(out, 0.5 * (start + end) * (size - 1))
        else:
            raise Inexpressible(f"coordinate_transformation_mode {transformation!r} is not supported")
        self.coordinates = positions

    @property
    def is_identity(self) -> bool:
        return self.size == self.out and bool(np.array_equal(self.coordinates, np.arange(self.out)))

    def indices(self, nearest_mode: str) -> Array:
        """Return the input index of each output for mode nearest; int32, clipped to the input."""
        rounded: dict[str, Callable[[Array], Array]] = {
            "round_prefer_floor": lambda x: np.ceil(x - 0.5),
            "round_prefer_ceil": lambda x: np.floor(x + 0.5),
            "floor": np.floor,
            "ceil": np.ceil,
        }
        if nearest_mode not in rounded:
            raise Inexpressible(f"nearest_mode {nearest_mode!r} is not supported")
        picked = np.clip(rounded[nearest_mode](self.coordinates), 0, self.size - 1)
        return np.asarray(picked, np.int32)

    def matrix(
        self, mode: str, cubic_coeff_a: float, antialias: bool, exclude_outside: bool, extrapolation: float
    ) -> Array:
        """Return the matrix of shape (out, size), float32: output = matrix @ input."""
        stretch = min(self.factor, 1.0) if antialias else 1.0
        reach = (1.0 if mode == "linear" else 2.0) / stretch
        weights = np.zeros((self.out, self.size))
        crops = self.transformation == "tf_crop_and_resize"
        for row, position in enumerate(self.coordinates):
            if crops and not 0 <= position <= self.size - 1:
                if extrapolation:
                    raise Inexpressible("extrapolation_value must be 0 outside of the image")
                continue
            near = np.arange(floor(position - reach), ceil(position + reach) + 1)
            distance = np.abs(near - position) * stretch
            share = np.maximum(1 - distance, 0) if mode == "linear" else _cubic(distance, cubic_coeff_a)
            in_bounds = (near >= 0) & (near < self.size)
            if exclude_outside:
                share = share * in_bounds
            if antialias or exclude_outside:
                share = share / share.sum()
            np.add.at(weights[row], np.clip(near, 0, self.size - 1), share)
        return weights.astype(np.float32)


def _cubic(distance: Array, a: float) -> Array:
    """Compute Keys' kernel, as in the specification."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))
