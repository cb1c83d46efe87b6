"""Rounding of a matrix to integers in blocks: to the nearest, or with compensation by the later columns."""

from __future__ import annotations

import numpy as np

from edgekit.generate.host.graphs.language import BlockWeights
from edgekit.tensor_spec import Array

SMALLEST = np.float32(1e-12)
"""Scale of a block whose weights are equal."""
PART_ROWS = 1024
"""Rows that are rounded at one time: copies of an embedding would take gigabytes."""
RANGES = (1.0, 0.93, 0.86, 0.8, 0.74)
"""Parts of a block's range that are tried as the range of its integers."""
DAMP = 0.1
"""Added to the second moments' diagonal, in units of its mean. GPTQ's own (arXiv 2210.17323) is .01:
perplexity of SmolLM2-135M 40.01 with it and 39.83 with .1, on blocks that are not the file's, float 38.17."""


def nearest8(matrix: Array, block: int) -> BlockWeights:
    """int8, symmetric: the largest weight of a block is 127 steps.

    Args:
        matrix: float32 [outputs, inputs].
        block: Inputs that share a scale; 0: all of them.
    """
    outputs, inputs = matrix.shape
    blocks = matrix.reshape(outputs, -1, block or inputs)
    stored, scales = np.empty(blocks.shape, np.uint8), np.empty(blocks.shape[:2], np.float32)
    for start in range(0, outputs, PART_ROWS):
        rows = slice(start, start + PART_ROWS)
        scales[rows] = np.maximum(np.abs(blocks[rows]).max(axis=-1) / 127, SMALLEST)
        stored[rows] = np.rint(blocks[rows] / scales[rows, :, None]) + 128
    return BlockWeights(stored.reshape(outputs, inputs), scales, bits=8)


def fitted4(matrix: Array, moments: Array, block: int) -> BlockWeights:
    """int4 with a scale and a minimum for each block, rounded so that the layer's outputs change least.

    GPTQ (arXiv 2210.17323): columns are rounded in their order, and what each rounding does to the outputs is
    compensated by the columns that follow. The grid of a block is fitted when its first column comes, to the
    weights as they are by then (``_grid``).

    Args:
        matrix: float32 [outputs, inputs].
        moments: float [inputs, inputs]: the inputs' second moments, mean of x x^T.
        block: Inputs that share a grid.
    """
    weights, inverse = matrix.astype(np.float32), _inverse_factor(moments).astype(np.float32)
    outputs, inputs = weights.shape
    stored = np.empty((outputs, inputs), np.uint8)
    grids = []
    for start in range(0, inputs, block):
        end = start + block
        columns = weights[:, start:end]
        scale, minimum = _grid(columns, 1 / np.diagonal(inverse)[start:end] ** 2)
        errors = np.empty_like(columns)
        for column in range(block):
            row = start + column
            integer = np.clip(np.rint((columns[:, column] - minimum) / scale), 0, 15)
            stored[:, row] = integer
            error = (columns[:, column] - (integer * scale + minimum)) / inverse[row, row]
            columns[:, column + 1 :] -= error[:, None] * inverse[row, row + 1 : end]
            errors[:, column] = error
        weights[:, end:] -= errors @ inverse[start:end, end:]
        grids.append((scale, minimum))
    scales = np.stack([scale for scale, _ in grids], axis=1)
    return centred4(stored, scales, np.stack([minimum for _, minimum in grids], axis=1))


def centred4(stored: Array, scales: Array, minima: Array) -> BlockWeights:
    """scale * stored + minimum as BlockWeights: integers count from 8, which is the kernels' own zero point.

    Args:
        stored: uint8 [outputs, inputs], 0 to 15.
        scales: float32 [outputs, blocks].
        minima: The same.
    """
    return BlockWeights(stored, scales, minima=(minima + 8 * scales).astype(np.float32), bits=4)


def _grid(weights: Array, importance: Array) -> tuple[Array, Array]:
    """Scale and minimum of each output, float32 [outputs], by least squares weighted with the importance.

    Args:
        weights: float32 [outputs, block].
        importance: [block].
    """
    low, high = weights.min(axis=1), weights.max(axis=1)
    middle, total = (low + high) / 2, importance.sum()
    mean = weights @ importance / total
    best: tuple[Array, Array, Array] | None = None
    for part in RANGES:
        scale = np.maximum((high - low) * part / 15, SMALLEST)
        minimum = middle - 7.5 * scale
        integers = np.clip(np.rint((weights - minimum[:, None]) / scale[:, None]), 0, 15)
        # The line through the weights at their integers; where all integers are equal it stays as it is.
        centre = integers @ importance / total
        spread = ((integers - centre[:, None]) ** 2) @ importance
        slope = ((integers - centre[:, None]) * (weights - mean[:, None])) @ importance
        fitted = np.where(spread > 0, slope / np.where(spread > 0, spread, 1), scale)
        fitted = np.maximum(fitted, SMALLEST).astype(np.float32)
        offset = (mean - fitted * centre).astype(np.float32)
        rounded = np.clip(np.rint((weights - offset[:, None]) / fitted[:, None]), 0, 15)
        error = ((rounded * fitted[:, None] + offset[:, None] - weights) ** 2) @ importance
        if best is None:
            best = (error, fitted, offset)
        else:
            better = error < best[0]
            best = (
                np.where(better, error, best[0]),
                np.where(better, fitted, best[1]),
                np.where(better, offset, best[2]),
            )
    assert best is not None
    return best[1], best[2]


def _inverse_factor(moments: Array) -> Array:
    """Return the upper Cholesky factor of the damped moments' inverse, float64 [inputs, inputs]."""
    size, damp = len(moments), DAMP
    mean = float(np.trace(moments)) / size or 1.0
    while True:
        try:
            inverse = np.linalg.inv(moments.astype(np.float64) + damp * mean * np.eye(size))
            upper: Array = np.linalg.cholesky((inverse + inverse.T) / 2).T
            return upper
        except np.linalg.LinAlgError:  # rounding made it indefinite; more damping ends that
            damp *= 10
