"""Arguments of ONNX Resize: the source of each output along an axis (``compiler/model/resize_matrix.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edgekit.compiler.lowering.index_arguments import NodeInput, constant_ints
from edgekit.compiler.model.resize_matrix import ResizeAxis, resize_lines
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array

MODES = ("nearest", "linear", "cubic")


class Resizing(NamedTuple):
    """Decoded Resize.

    Attributes:
        lines: One entry for each axis of the data.
        mode: ``nearest``, ``linear`` or ``cubic``. Other fields are attributes of the node.
        crops: Whether points outside of the image have ``extrapolation_value`` (tf_crop_and_resize).
    """

    lines: list[ResizeAxis]
    mode: str
    nearest_mode: str
    cubic_coeff_a: float
    antialias: bool
    exclude_outside: bool
    crops: bool
    extrapolation_value: float

    @property
    def changed(self) -> list[int]:
        return [axis for axis, line in enumerate(self.lines) if not line.is_identity]

    @property
    def smooths(self) -> bool:
        """Return whether the node averages over more than the nearest points: antialias, where it shrinks."""
        return self.antialias and min(line.factor for line in self.lines) < 1

    @property
    def is_inside(self) -> Array:
        """Return which outputs have their source inside the image (all, unless ``crops``).

        A mask of booleans: of the output's shape, or 1 along axes that are all inside.
        """
        mask: Array = np.ones((), bool)
        for line in self.lines if self.crops else ():
            is_inside = (line.coordinates >= 0) & (line.coordinates <= line.size - 1)
            mask = mask[..., None] & (is_inside[:1] if is_inside.all() else is_inside)
        return mask

    def indices(self, axis: int) -> Array:
        """Return the input index of each output along an axis, for mode nearest; int32."""
        return self.lines[axis].indices(self.nearest_mode)

    def matrix(self, axis: int, outside: float = 0.0) -> Array:
        """Return the matrix [out, size] of an axis, float32; ``outside`` is the value beyond the image.

        Raises:
            Inexpressible: ``outside`` is not 0, and points are outside of the image.
        """
        options = self.mode, self.cubic_coeff_a, self.antialias, self.exclude_outside
        return self.lines[axis].matrix(*options, outside)


def resized_axes(
    data_shape: Sequence[int],
    out_shape: Sequence[int],
    roi: NodeInput | None,
    scales: NodeInput | None,
    sizes: NodeInput | None,
    *,
    axes: Sequence[int] | None,
    coordinate_transformation_mode: str,
    keep_aspect_ratio_policy: str,
    mode: str,
) -> list[ResizeAxis]:
    """Decode a Resize: one entry for each axis of the data. Arguments are the node's inputs and attributes.

    Raises:
        Inexpressible: the model computes scales, sizes or the roi that is read; or a mode is none of ONNX's.
    """
    if mode not in MODES:
        raise Inexpressible(f"mode {mode!r} is not one of {', '.join(MODES)}")
    if scales is not None and scales.const is None and 0 not in scales.shape:
        raise Inexpressible("the model computes its scales; they must be constant")
    if coordinate_transformation_mode == "tf_crop_and_resize" and (roi is None or roi.const is None):
        raise Inexpressible("the model computes its roi; it must be constant")
    target_sizes = None if sizes is None else np.array(constant_ints(sizes, "sizes"))
    return resize_lines(
        data_shape,
        out_shape,
        list(axes or range(len(data_shape))),
        coordinate_transformation_mode,
        keep_aspect_ratio_policy,
        None if scales is None else scales.const,
        target_sizes,
        None if roi is None else roi.const,
    )


def repetition(indices: Array, size: int) -> int | None:
    """Return how often ``indices`` repeat each of ``size`` elements in order, or None if they do not.

    >>> repetition(np.array([0, 0, 1, 1]), 2), repetition(np.array([0, 1, 1]), 2)
    (2, None)
    """
    times = max(len(indices) // size, 1)
    return times if np.array_equal(indices, np.repeat(np.arange(size), times)) else None
