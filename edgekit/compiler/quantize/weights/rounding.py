"""Rounding of weights: per-channel scales, round-to-nearest, GPTQ, and limits for int16 accumulators.

All functions work on a matrix view of the weights: ``[groups, outputs, columns]``, outputs and columns of one
group. A dense Conv, Gemm or MatMul has one group; a depthwise Conv has one for each channel, and all of them
are rounded at once.

Pairs. x86 without VNNI multiplies uint8 by int8 with ``vpmaddubsw``: two neighbouring products are added in
int16, **and the sum saturates** (255 * 127 * 2 = 64770 > 32767). ONNX Runtime's and oneDNN's kernels give
wrong results without a warning. If paired weights of the same sign add up to at most 128 (255 * 128 = 32640),
no activation can saturate the sum. The paired columns were found with one output channel for every pair of
columns (ONNX Runtime 1.31, OpenVINO 2026.4, AVX2): neighbouring input channels at one kernel element; and,
with an odd number of channels (ONNX Runtime) or a grouped Conv (both), neighbours in the order element by
element, channel by channel. int8 activations use the same kernels, shifted by 128. True depthwise kernels add
in int32.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.compiler.quantize.numerics import SMALLEST_SCALE
from edgekit.tensor_spec import Array

WEIGHT_MAX = 127
"""Weights are quantized to -127 .. 127: TFLite's 8-bit specification, symmetric about zero."""

DAMP = 0.3
"""Added to the Hessian's diagonal, in units of its mean. Thirty times the .01 of arXiv 2210.17323, because a
deep layer has fewer sampled positions than columns and would overfit. SNR of EfficientNet-Lite0 on
photographs of another set, min-max, mean and worst of three draws of 16 samples: .01 23.9 and 22.2 dB, .03
24.1 and 23.9, .1 24.5 and 23.8, .3 24.7 and 24.4; of 8 samples: .01 23.7 and 22.6, .1 23.8 and 22.3, .3 24.1
and 23.9, 1 23.9 and 23.4."""

BLOCK = 64
"""Columns whose errors are propagated one by one; errors of earlier blocks are propagated in one product."""


def pairs_of(channels: int, kernel_size: int) -> Array:
    """Return the pairs of columns whose products a kernel adds in int16, int64 [pairs, 2].

    Args:
        channels: Input channels of one group.
        kernel_size: The product of the kernel's dimensions. Column = channel * kernel_size + element.

    >>> pairs_of(2, 2).tolist(), pairs_of(1, 2).tolist()
    ([[0, 2], [1, 3]], [[0, 1]])
    """
    column = np.arange(channels * kernel_size).reshape(channels, kernel_size)
    uniform = channels // 2 * 2
    side_by_side = np.stack([column[0:uniform:2].ravel(), column[1:uniform:2].ravel()], 1)
    flat = column.T.ravel()
    whole = len(flat) // 2 * 2
    in_a_row = flat[:whole].reshape(-1, 2)
    ordered: Array = np.unique(np.sort(np.concatenate([side_by_side, in_a_row]), axis=1), axis=0)
    return ordered


def channel_scales(weights: Array, pairs: Array | None = None, limit: int = 128) -> Array:
    """Return the smallest scale of each output channel that no weight and no pair overflows.

    Args:
        weights: float [groups, outputs, columns].
        limit: The largest sum of two weights of one sign.

    Returns:
        float64 [groups, outputs], each a float32 number. A channel of zeros gets the largest scale of the
        others, or 1, so that its bias does not overflow.
    """
    need = np.abs(weights).max(axis=2, initial=0) / WEIGHT_MAX
    if pairs is not None and len(pairs):
        one, other = weights[..., pairs[:, 0]], weights[..., pairs[:, 1]]
        both = np.where(one * other > 0, np.abs(one + other), 0).max(axis=2)
        need = np.maximum(need, both / limit)
    need = np.where(need > 0, np.maximum(need, SMALLEST_SCALE), need.max(initial=0.0) or 1.0)
    # Rounding to float32 may make a scale smaller; weights are clipped to 127, so nothing overflows.
    return need.astype(np.float32).astype(np.float64)


def nearest(weights: Array, scales: Array, pairs: Array | None = None, limit: int = 128) -> Array:
    """Round-to-nearest.

    Args:
        weights: float [groups, outputs, columns].
        scales: [groups, outputs].

    Returns:
        int8 [groups, outputs, columns], in -127 .. 127.
    """
    stored = np.clip(np.rint(weights / scales[..., None]), -WEIGHT_MAX, WEIGHT_MAX).astype(np.int16)
    return within_limit(stored, pairs, limit)


def within_limit(stored: Array, pairs: Array | None, limit: int) -> Array:
    """int8 of ``stored``; in a pair over the limit the larger weight is reduced by the excess."""
    stored = stored.copy()
    # A column is in up to two pairs, and reducing it for one pair may already satisfy the other. Weights only
    # get smaller, so this never violates another pair.
    for first in (0, 1):
        for one, other in _disjoint(pairs)[first]:
            a, b = stored[..., one].astype(np.int32), stored[..., other].astype(np.int32)
            excess = np.where(a * b > 0, np.maximum(np.abs(a + b) - limit, 0), 0)
            a_gives = np.abs(a) >= np.abs(b)
            stored[..., one] -= (np.sign(a) * excess * a_gives).astype(stored.dtype)
            stored[..., other] -= (np.sign(b) * excess * ~a_gives).astype(stored.dtype)
    return stored.astype(np.int8)


def _disjoint(pairs: Array | None) -> tuple[list[tuple[Array, Array]], list[tuple[Array, Array]]]:
    """Split the pairs into two sets, each without repeated columns in one step, as arrays of columns."""
    if pairs is None or not len(pairs):
        return [], []
    used_columns: set[int] = set()
    first, second = [], []
    for one, other in pairs.tolist():
        if one in used_columns or other in used_columns:
            second.append((one, other))
        else:
            used_columns.update((one, other))
            first.append((one, other))
    halves = [np.array(half, np.int64).reshape(-1, 2) for half in (first, second)]
    return [(halves[0][:, 0], halves[0][:, 1])], [(row[:1], row[1:]) for row in halves[1]]


def gptq(
    weights: Array, scales: Array, hessian: Array, pairs: Array | None = None, limit: int = 128
) -> Array:
    """GPTQ: round column by column; later columns compensate each rounding error.

    GPTQ (arXiv 2210.17323) in the form without an inverse: with H = R^T R, R upper triangular, the columns
    are rounded from the last to the first, each to the integer nearest to

        w[j] + sum over k > j of R[j, k] / R[j, j] * (w[k] - scale * stored[k])

    which is Babai's nearest plane on the same lattice, and gives what GPTQ gives in the opposite order. The
    columns with the largest diagonal are rounded first.

    Args:
        weights: float64 [groups, outputs, columns].
        scales: [groups, outputs].
        hessian: float64 [groups, columns, columns], positive semidefinite: the inputs' second moments. Dead
            columns and fewer observations than columns are fine.

    Returns:
        int8 [groups, outputs, columns], in -127 .. 127.
    """
    groups, outputs, columns = weights.shape
    order = np.argsort(np.einsum("gkk->k", hessian), kind="stable")
    unit = _unit_upper(hessian[:, order][:, :, order])
    weights = weights[..., order]
    earlier = _earlier_partners(pairs, order)
    error = np.zeros_like(weights)
    stored = np.zeros((groups, outputs, columns))
    for end in range(columns, 0, -BLOCK):
        start = max(end - BLOCK, 0)
        pull = error[..., end:] @ unit[:, start:end, end:].swapaxes(1, 2)
        for j in range(end - 1, start - 1, -1):
            within_block = (error[..., j + 1 : end] @ unit[:, j, j + 1 : end, None])[..., 0]
            target = np.rint((weights[..., j] + pull[..., j - start] + within_block) / scales)
            lowest, highest = np.float64(-WEIGHT_MAX), np.float64(WEIGHT_MAX)
            for partner in earlier.get(j, ()):
                highest = np.minimum(highest, limit - np.maximum(stored[..., partner], 0))
                lowest = np.maximum(lowest, -limit - np.minimum(stored[..., partner], 0))
            stored[..., j] = np.clip(target, lowest, highest)
            error[..., j] = weights[..., j] - stored[..., j] * scales
    result = np.empty((groups, outputs, columns), np.int8)
    result[..., order] = stored.astype(np.int8)
    return result


def compensated(weights: Array, hessian: Array, cross: Array, ridge: float) -> Array:
    """Return the weights that, applied to the quantized inputs, best approximate the float outputs (ridge
    regression).

    Args:
        weights: float64 [groups, outputs, columns].
        hessian: float64 [groups, columns, columns]: sum of x x^T over the quantized inputs x.
        cross: float64 [groups, columns, outputs]: sum of x y^T with the float outputs y.
        ridge: Regularization towards the original weights, in units of the mean of the Hessian's diagonal.
            Small values overfit: .05 lost 5 dB on other photographs, 1 lost nothing.

    Returns:
        float64, like ``weights``.
    """
    missing = cross - hessian @ weights.swapaxes(1, 2)
    solved: Array = np.linalg.solve(_damped(hessian, ridge), missing)
    return weights + solved.swapaxes(1, 2)


def _damped(hessian: Array, damp: float) -> Array:
    size = hessian.shape[-1]
    mean = np.einsum("gkk->g", hessian) / size
    damping = np.where(mean > 0, mean, 1.0)[:, None, None] * damp * np.eye(size)
    damped: Array = hessian + damping
    return damped


def _unit_upper(hessian: Array) -> Array:
    """Return the factor R of H = R^T R, with its rows divided by their diagonal."""
    damp = DAMP
    while True:
        try:
            upper = np.linalg.cholesky(_damped(hessian, damp)).swapaxes(1, 2)
        except np.linalg.LinAlgError:  # rounding made it indefinite; more damping ends that
            damp *= 10
            continue
        return np.ascontiguousarray(upper / np.einsum("gkk->gk", upper)[..., None])


def _earlier_partners(pairs: Array | None, order: Array) -> dict[int, Sequence[int]]:
    """Map each column (in ``order``) to its paired columns that are rounded before it."""
    partners: dict[int, list[int]] = {}
    if pairs is not None and len(pairs):
        position = np.empty_like(order)
        position[order] = np.arange(len(order))
        for one, other in np.sort(position[pairs], axis=1).tolist():
            partners.setdefault(one, []).append(other)
    return dict(partners)
