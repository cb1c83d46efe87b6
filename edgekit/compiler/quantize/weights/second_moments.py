"""Means and second moments (Hessians) of a layer's quantized inputs, for GPTQ and bias correction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edgekit.compiler.quantize.recipe import Affine, Recipe
from edgekit.compiler.quantize.weights.sampled_positions import Targets
from edgekit.compiler.quantize.weights.weight_matrix import WeightMatrix
from edgekit.tensor_spec import Array

CHUNK = 256
"""Positions in one product of float32: sums of 256 products of 8-bit integers are exact, whatever the order
and the number of threads."""
CHUNK_VALUES = 2**23
"""Values in one product at most (32 MB)."""
COLUMNS_LIMIT = 4096
"""Most columns that are rounded together: their Hessian has 128 MB. Beyond that, columns are rounded in
blocks, and errors are compensated within a block."""


@dataclass(frozen=True, eq=False)
class InputMoments:
    """Moments of the quantized inputs x: sums over the sampled positions, in real units.

    Attributes:
        means: float64 [samples, groups, columns], over the uniformly drawn positions of each sample.
        hessian: For each block of columns, float64 [groups, columns, columns]: x x^T, about the mean if the
            bias absorbs the mean.
        cross: For each block, float64 [groups, columns, outputs]: x y^T; () without compensation.
    """

    means: Array
    hessian: tuple[Array, ...]
    cross: tuple[Array, ...]


def moments_of(
    product: WeightMatrix,
    x: Callable[[int], Array],
    affine: Affine | None,
    target: Targets,
    recipe: Recipe,
    about_mean: bool,
) -> InputMoments:
    """Sum over the positions of all samples.

    Integer inputs are summed exactly, several samples in one matrix product, and scaled afterwards. Float
    inputs use one product per sample, so that the result does not depend on batching.

    Args:
        product: Layer with ``has_columns``.
        x: Maps a sample to the input: integers of ``affine``, or floats if ``affine`` is None.
    """
    groups, outputs, columns = product.matrix().shape
    blocks = column_blocks(columns)
    crossed = recipe.compensation is not None
    squared = crossed or recipe.rounding == "gptq"
    total = np.zeros((groups, columns))
    of_even = np.zeros((len(target.positions), groups, columns))
    of_outputs = np.zeros((groups, outputs))
    hessian = [np.zeros((groups, end - start, end - start)) for start, end in blocks if squared]
    cross = [np.zeros((groups, end - start, outputs)) for start, end in blocks if crossed]
    zero = np.zeros((), np.float32) if affine is None else affine.zero_point.astype(np.float32)
    step = max(1, min(CHUNK, CHUNK_VALUES // (groups * columns)))
    count = 0
    waiting: list[Array] = []

    def multiply() -> None:
        together = waiting[0] if len(waiting) == 1 else np.concatenate(waiting, axis=2)
        waiting.clear()
        for i, (start, end) in enumerate(blocks):
            part = together[:, start:end]
            if groups == 1:  # numpy takes half the time for a matrix times its own transpose
                hessian[i][0] += part[0] @ part[0].T
            else:
                hessian[i] += part @ part.swapaxes(1, 2)

    for sample, positions in enumerate(target.positions):
        by_channel = product.by_channel(x(sample))
        for first in range(0, len(positions), step):
            rows = product.rows(by_channel, zero, positions[first : first + step])
            total += _sums(rows, affine)
            of_even[sample] += _sums(rows[..., : max(target.uniform[sample] - first, 0)], affine)
            count += rows.shape[2]
            if crossed:
                y = target.values[sample][:, first : first + step].astype(np.float64)
                if product.own_bias:
                    y -= product.beta * np.asarray(product.bias, np.float64)[:, None]
                y = (y / product.alpha).reshape(groups, outputs, -1)
                of_outputs += y.sum(axis=2)
                for i, (start, end) in enumerate(blocks):
                    cross[i] += rows[:, start:end] @ y.swapaxes(1, 2)
            if squared:
                if waiting and (not _exact(affine) or sum(part.shape[2] for part in [*waiting, rows]) > step):
                    multiply()
                waiting.append(rows)
    if waiting:
        multiply()
    scale = _column_scales(product, affine, total.shape)
    mean = total / count
    for i, (start, end) in enumerate(blocks if squared else []):
        of_block = slice(start, end)
        if about_mean:
            hessian[i] -= count * mean[:, of_block, None] * mean[:, None, of_block]
        hessian[i] *= scale[:, of_block, None] * scale[:, None, of_block]
        if crossed:
            if about_mean:
                cross[i] -= mean[:, of_block, None] * of_outputs[:, None, :]
            cross[i] *= scale[:, of_block, None]
    means = of_even / np.reshape(target.uniform, (-1, 1, 1)) * scale
    return InputMoments(means, tuple(hessian), tuple(cross))


def _sums(rows: Array, affine: Affine | None) -> Array:
    """Sum over the positions: integers exactly in float32 (up to CHUNK of them), floats in float64."""
    if not _exact(affine):
        total: Array = rows.sum(axis=2, dtype=np.float64)
        return total
    return rows @ np.ones(rows.shape[2], np.float32)


def _exact(affine: Affine | None) -> bool:
    """Return whether float32 sums CHUNK products of such values without rounding."""
    return affine is not None and affine.dtype in ("int8", "uint8")


def _column_scales(product: WeightMatrix, affine: Affine | None, shape: tuple[int, ...]) -> Array:
    """Return the input's scale at each column, float64 [groups, columns]."""
    if affine is None:
        return np.ones(shape)
    scale = np.asarray(affine.scale, np.float64)
    if scale.size == 1:
        return np.full(shape, scale.reshape(()))
    return np.repeat(scale, product.kernel_size).reshape(shape)


def column_blocks(columns: int) -> list[tuple[int, int]]:
    """Return (start, end) of the blocks of columns that are rounded together."""
    starts = range(0, columns, COLUMNS_LIMIT)
    return [(start, min(start + COLUMNS_LIMIT, columns)) for start in starts]
