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
TRIANGLE = 128
"""Size of a triangular matrix that is inverted whole."""
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
        moments: float32 [inputs, inputs]: the inputs' second moments, mean of x x^T.
        block: Inputs that share a grid.
    """
    weights = np.array(matrix.T, np.float32, order="C")  # [inputs, outputs]: a column is contiguous memory
    inverse = inverse_factor(moments)
    stored = np.empty(weights.shape, np.uint8)
    grids = []
    for start in range(0, len(weights), block):
        end = start + block
        columns = weights[start:end]
        scale, minimum = _grid(np.ascontiguousarray(columns.T), 1 / np.diagonal(inverse)[start:end] ** 2)
        errors = np.empty_like(columns)
        for column, weight in enumerate(columns):
            row = start + column
            integer = np.clip(np.rint((weight - minimum) / scale), 0, 15)
            stored[row] = integer
            errors[column] = (weight - (integer * scale + minimum)) / inverse[row, row]
            columns[column + 1 :] -= inverse[row, row + 1 : end, None] * errors[column]
        weights[end:] -= inverse[start:end, end:].T @ errors
        grids.append((scale, minimum))
    scales, minima = (np.stack(part, axis=1) for part in zip(*grids, strict=True))
    return centred4(np.ascontiguousarray(stored.T), scales, minima)


def centred4(stored: Array, scales: Array, minima: Array) -> BlockWeights:
    """scale * stored + minimum as BlockWeights: integers count from 8, which is the kernels' own zero point.
    A grid that counts from 8 itself (GGUF's Q4_0) has no minima, and no second product.

    Args:
        stored: uint8 [outputs, inputs], 0 to 15.
        scales: float32 [outputs, blocks].
        minima: The same.
    """
    rest = (minima + 8 * scales).astype(np.float32)
    return BlockWeights(stored, scales, minima=rest if rest.any() else None, bits=4)


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


def inverse_factor(moments: Array) -> Array:
    """Return the upper Cholesky factor of the damped moments' inverse, float32 [inputs, inputs].

    The lower factor L of the moments with rows and columns in reverse order gives it without the inverse: the
    reversed L is an upper factor R of the moments, R R^T, and the factor of the inverse is R^-1.

    Args:
        moments: float32 [inputs, inputs], symmetric.
    """
    size, damp = len(moments), DAMP
    mean = float(np.trace(moments)) / size or 1.0
    while True:
        damped = np.array(moments[::-1, ::-1], np.float32, order="C")
        damped.flat[:: size + 1] += np.float32(damp * mean)
        try:
            return _upper_inverse(np.linalg.cholesky(damped)[::-1, ::-1])
        except np.linalg.LinAlgError:  # rounding made it indefinite; more damping ends that
            damp *= 10


def _upper_inverse(matrix: Array) -> Array:
    """Invert an upper triangular matrix by halves, so that most of the work is products."""
    size = len(matrix)
    if size <= TRIANGLE:
        return np.triu(np.linalg.inv(matrix))
    half = size // 2
    inverse = np.zeros_like(matrix, order="C")
    inverse[:half, :half] = _upper_inverse(matrix[:half, :half])
    inverse[half:, half:] = _upper_inverse(matrix[half:, half:])
    inverse[:half, half:] = inverse[:half, :half] @ (matrix[:half, half:] @ -inverse[half:, half:])
    return inverse
