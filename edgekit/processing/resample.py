"""Another sample rate: a polyphase filter, in numpy.

    y[m] = sum_k x[k] h(m M - k L)        L / M = the new rate / the old one, in lowest terms

``h`` is a sinc that ends CROSSINGS zero crossings to each side under a Kaiser window. Its cutoff lies so far
below half of the lower rate that the stop band begins there: nothing is folded back. Samples before the
first and after the last one count as zero. docs/measured.md has its figures.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import ceil, gcd

import numpy as np

from edgekit.processing.serial_product import serial_product
from edgekit.tensor_spec import Array

CROSSINGS = 64
STOP_DB = 90.0
"""Attenuation of the stop band; Kaiser's formulas for beta and the transition's width follow from it."""
KAISER_BETA = 0.1102 * (STOP_DB - 8.7)
TRANSITION = (STOP_DB - 7.95) / (14.36 * 2 * CROSSINGS)
"""Width of the transition, as a part of the lower rate (Kaiser 1974: (A - 7.95) / (14.36 N), with N the
number of taps, 2 CROSSINGS at the lower rate; half of it lies to each side of the cutoff)."""
STEPS = 1024
"""Points of the stored filter for each sample of the lower rate."""
GROUP = 32
"""Successive outputs that are computed as one product of matrices. A fifth of the weights are zeros then, but
recordings of 48 and of 8 kHz become 16 kHz in a fifth of the time."""

ROWS_LEAST = 64
"""Products of a part of a recording with the same weights, at least."""


def resample(samples: Array, rate: int, new_rate: int) -> Array:
    """Resample a recording to another rate.

    Returns:
        float64 [ceil(n x new_rate / rate)].
    """
    divisor = gcd(rate, new_rate)
    scale, down = new_rate // divisor, rate // divisor
    samples = samples.astype(np.float64, copy=False)
    if scale == down:
        return samples
    reach = _reach(scale, down)
    count = ceil(len(samples) * scale / down)
    repeats = max(1, GROUP // scale)
    period, step = repeats * scale, repeats * down  # so many outputs further, the same weights apply
    rows = ceil(count / period)
    out = np.empty((rows, period))
    padded = np.concatenate([np.zeros(reach), samples, np.zeros(reach + 1 + period * down // scale)])
    for first in range(0, min(period, count), GROUP):
        start, weights = _weights(scale, down, range(first, min(first + GROUP, period, count)))
        windows = np.lib.stride_tricks.sliding_window_view(padded[start:], len(weights))[::step]
        out[:, first : first + weights.shape[1]] = serial_product(windows[:rows], weights)
    return out.ravel()[:count]


def cut(size: int, rate: int, new_rate: int, piece: int) -> Iterator[tuple[int, int, slice]]:
    """Cut a recording into overlapping parts that are resampled one by one, to the same bits as the whole.

    Args:
        piece: Number of samples of a part, about. It is larger if the weights are many, because each part
            computes them.

    Yields:
        First sample of a part, the one after its last, and which of its resampled samples to keep.
    """
    divisor = gcd(rate, new_rate)
    scale, down = new_rate // divisor, rate // divisor
    step = max(1, GROUP // scale) * down  # so many samples further, the same weights apply
    margin = step * ceil(_reach(scale, down) / step)
    piece = step * max(ROWS_LEAST, ceil(piece / step))
    for start in range(0, size, piece):
        first = max(0, start - margin)
        skipped, end = (start - first) * scale // down, start + piece
        selection = slice(skipped, None if end >= size else skipped + piece * scale // down)
        yield first, min(size, end + margin), selection


@lru_cache(maxsize=64)  # 5 for 44.1 to 16 kHz, 0.1 MB each: most of the time of a short part
def _weights(factor: int, down: int, outputs: range) -> tuple[int, Array]:
    """Compute the weights of successive outputs, as a matrix.

    Returns:
        Index of the first padded sample that contributes to one, and the weights [samples, outputs].
    """
    taps = dict[int, Array]()
    start, width = outputs[0] * down // factor, 2 * _reach(factor, down) + 1
    matrix = np.zeros((outputs[-1] * down // factor - start + width, len(outputs)))
    for column, output in enumerate(outputs):
        base, phase = divmod(output * down, factor)
        if phase not in taps:
            taps[phase] = _taps(factor, down, phase)
        matrix[base - start : base - start + width, column] = taps[phase]
    return start, matrix


def _reach(factor: int, down: int) -> int:
    """Return the number of samples on each side that contribute to an output."""
    return ceil(CROSSINGS * max(1.0, down / factor)) + 1


def _taps(factor: int, down: int, phase: int) -> Array:
    """Compute the weights [2 reach + 1] of the samples around an output that lies phase / factor after the
    middle one."""
    reach = _reach(factor, down)
    lower = min(1.0, factor / down)  # the lower rate, as a part of the samples' own
    distance = np.abs(np.arange(-reach, reach + 1) - phase / factor)
    taps: Array = lower * np.interp(distance * lower * STEPS, *_impulse_response())
    return taps


@lru_cache(maxsize=1)
def _impulse_response() -> tuple[Array, Array]:
    """Compute the right half of the filter at STEPS points per sample of the lower rate. Return their index
    and ``h``.

    Straight lines between them are off by 1e-6, 30 dB below the stop band.
    """
    index = np.arange(CROSSINGS * STEPS + 1)
    time = index / STEPS
    window = np.i0(KAISER_BETA * np.sqrt(1.0 - np.square(time / CROSSINGS))) / np.i0(KAISER_BETA)
    window[-1] = 0.0  # beyond it the filter is zero: no step
    cutoff = 1.0 - TRANSITION
    return index, cutoff * np.sinc(cutoff * time) * window
