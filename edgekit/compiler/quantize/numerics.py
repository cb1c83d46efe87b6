"""Scale and zero point from a range; quantize and dequantize as ONNX does; min-max and MSE ranges."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from edgekit.compiler.quantize.observe.observers import Observation, thinned
from edgekit.compiler.quantize.recipe import Affine, RangeRule
from edgekit.target.quant_rules import Dtype
from edgekit.tensor_spec import Array

SMALLEST_SCALE = 2.0**-60
"""Least scale. The scale of a bias is the product of two, and must still be a normal float32."""
Errors = Callable[[Array, Array], Array]
RANGE_VALUES = 16_384
"""Number of values on which the error of a range is measured."""

_SHRINK_HIGH = np.array([1.0, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3])
_SHRINK_LOW = np.array([*_SHRINK_HIGH, 0.2, 0.1, 0.05])
_SHRINK_BOTH = np.arange(40, 7, -1) / 40
MAX_L2_COST = 2.0
"""Largest ratio of the squared error of the ``l4`` range to that of ``l2`` (half a bit). Above it, ``l2`` is
used: the tensor has a few extreme outliers. SNR of PP-OCR detection, where 0.1 % to 99.9 % of a Conv's inputs
lie in -1854 .. 2117 and the extremes at -28898 and 41368: 13.4 dB without this limit, 18.0 with it;
YOLOX-nano 17.4 and 18.9; EfficientNet-Lite0 the same."""
ROUNDS = 6
"""Most rounds of the alternating search over both ends; enough for a range of a hundredth of the min-max."""


def stored_range(dtype: Dtype, narrow: bool = False) -> tuple[int, int]:
    """Return the least and the greatest stored integer. ``narrow`` excludes the least, as TFLite requires of
    weights.

    >>> stored_range("int8"), stored_range("int8", narrow=True), stored_range("uint8")
    ((-128, 127), (-127, 127), (0, 255))
    """
    limits = np.iinfo(dtype)
    return int(limits.min) + narrow, int(limits.max)


def affine(
    low: npt.ArrayLike,
    high: npt.ArrayLike,
    dtype: Dtype,
    symmetric: bool = False,
    axis: int | None = None,
    narrow: bool = False,
) -> Affine:
    """Compute the scale and zero point that cover [low, high] and zero. Zero is always represented exactly.

    Within the range the error of a value is at most half a scale.

    Args:
        low, high: Shape [], or [C] with ``axis``; finite. The range is extended to include zero.
        dtype: Data type of the stored integers: int8, uint8 or int16.
        symmetric: The zero point is 0 (128 for uint8), and the scale covers the end farther from zero. The
            least stored value, which has no opposite, is not used.
        narrow: Exclude the least stored value, e.g. [-127, 127].

    An empty range (all zeros) gets the largest scale of the other channels, or 1: with a scale near zero the
    integers of its bias would overflow.
    """
    bottom, top = stored_range(dtype, narrow)
    lower = np.minimum(np.asarray(low, np.float64), 0.0)
    upper = np.maximum(np.asarray(high, np.float64), 0.0)
    assert np.isfinite(lower).all()
    assert np.isfinite(upper).all()
    middle = (bottom + top + 1) // 2
    spread = np.maximum(-lower, upper) / (top - middle) if symmetric else (upper - lower) / (top - bottom)
    widest = float(spread.max(initial=0.0))
    scale = np.where(spread > 0, spread, widest if widest > 0 else 1.0)
    scale = np.asarray(np.maximum(scale, SMALLEST_SCALE), np.float32)
    if symmetric:
        return Affine(scale, np.full(scale.shape, middle, dtype), dtype, axis)
    zero = np.clip(np.rint(bottom - lower / scale), bottom, top)
    return Affine(scale, np.asarray(zero, dtype), dtype, axis)


def with_bytes_as(affine: Affine, dtype: Dtype) -> Affine:
    """Return a scale and zero point of one 8-bit type for another: the same real values, shifted integers.

    >>> int(affine(-1.0, 0.5, "int8").zero_point), int(affine(-1.0, 0.5, "uint8").zero_point)
    (42, 170)
    >>> int(with_bytes_as(affine(-1.0, 0.5, "int8"), "uint8").zero_point)
    170
    """
    if affine.dtype == dtype:
        return affine
    shift = stored_range(dtype)[0] - stored_range(affine.dtype)[0]
    return Affine(affine.scale, np.asarray(affine.zero_point + np.int64(shift), dtype), dtype, affine.axis)


def quantize(x: Array, affine: Affine) -> Array:
    """Return integers of ``affine.dtype``, bit for bit identical to ONNX's QuantizeLinear: saturate(round(x /
    scale) + zero point) in float32, halves to even. x is float32 and finite.

    int32 (biases) is rounded in float64, and has no QuantizeLinear.
    """
    work = np.float64 if affine.dtype == "int32" else np.float32
    bottom, top = stored_range(affine.dtype)
    zero = _along(affine.zero_point, affine, x.ndim).astype(np.int64)
    # As an array: of two arrays without axes NumPy's result is a scalar, which is no place for an output.
    stored = np.asarray(np.divide(x, _along(affine.scale, affine, x.ndim), dtype=work))
    np.rint(stored, out=stored)
    # Clipped as a float before the zero point is added: float32 represents these integers exactly.
    stored = np.clip(stored, (bottom - zero).astype(work), (top - zero).astype(work))
    stored += zero.astype(work)
    return np.asarray(stored.astype(affine.dtype))


def dequantize(stored: Array, affine: Affine) -> Array:
    """float32: (stored - zero point) * scale, as ONNX's DequantizeLinear gives it."""
    steps = stored.astype(np.int64) - _along(affine.zero_point, affine, stored.ndim).astype(np.int64)
    scale = _along(affine.scale, affine, stored.ndim)
    return np.asarray(np.multiply(steps.astype(np.float32), scale, dtype=np.float32))


def fake_quantize(x: Array, affine: Affine) -> Array:
    """float32: ``dequantize(quantize(x))`` without the integers; 8 and 16 bits."""
    bottom, top = stored_range(affine.dtype)
    scale = _along(affine.scale, affine, x.ndim)
    zero = _along(affine.zero_point, affine, x.ndim).astype(np.float32)
    steps = np.asarray(np.divide(x, scale, dtype=np.float32))
    np.rint(steps, out=steps)
    np.clip(steps, bottom - zero, top - zero, out=steps)
    steps *= scale
    return steps


def choose_range(
    observation: Observation,
    rule: RangeRule,
    dtype: Dtype,
    symmetric: bool,
    after: Callable[[Array], Array] | None = None,
) -> Affine:
    """Choose one scale for a whole tensor.

    ``minmax`` covers all observed values. ``l2`` (MSE) and ``l4`` take the range with the least mean
    |error|^2 or |error|^4 on the observation's sample, searched over the two ends alternately; ``l4`` falls
    back to ``l2`` if that has a much smaller squared error (MAX_L2_COST). The observed extremes of the
    channels count as one value each, so that outliers missing from the sample are not ignored. Without the
    extremes ``l4`` is better for activations alone, but worse with quantized weights, because clipping
    distorts the bias correction. SNR of EfficientNet-Lite0 with GPTQ and bias correction, two draws of 16
    photographs, on photographs of another set: l4 24.6 and 24.6 dB, without the extremes 21.5 and 22.3;
    min-max 24.7 and 24.4.
    Activations alone, two halves of 64 photographs: min-max 26.7 and 27.1, l2 28.7 and 28.2, l4 27.3 and 26.9
    (without the extremes 28.2 and 26.9); YOLOX-nano without its stem's output: min-max 11.5 and 13.7, l2 14.0
    and 15.3, l4 11.9 and 13.2 (without the extremes 14.2 and 13.9).

    Args:
        observation: Observation of the tensor; for several that share the scale, their ``pool``.
        after: Measure the error after this function of float32 arrays, e.g. SiLU, if the tensor has no other
            consumer.
    """
    low, high = min(float(observation.low.min()), 0.0), max(float(observation.high.max()), 0.0)
    if rule == "minmax" or low == high:
        return affine(low, high, dtype, symmetric)
    squares, fourth_powers = (_errors_of_ranges(observation, p, dtype, symmetric, after) for p in (2, 4))
    if symmetric:
        low, high = -max(-low, high), max(-low, high)
    narrow = _best_range(squares, low, high, symmetric)
    if rule == "l2":
        return affine(*narrow, dtype, symmetric)
    wide = _best_range(fourth_powers, low, high, symmetric)
    narrow_error, spent = squares(*np.array([narrow, wide]).T)
    return affine(*(narrow if spent > MAX_L2_COST * narrow_error else wide), dtype, symmetric)


def _best_range(errors: Errors, low: float, high: float, symmetric: bool) -> tuple[float, float]:
    for _ in range(ROUNDS):
        before = low, high
        if symmetric:
            highs = high * _SHRINK_BOTH
            high = float(highs[errors(-highs, highs).argmin()])
            low = -high
        else:
            if high > 0:
                highs = high * _SHRINK_HIGH
                high = float(highs[errors(np.full_like(highs, low), highs).argmin()])
            if low < 0:
                lows = low * _SHRINK_LOW
                low = float(lows[errors(lows, np.full_like(lows, high)).argmin()])
        if (low, high) == before:
            break
    return low, high


def channel_affine(observation: Observation, dtype: Dtype) -> Affine:
    """Return per-channel min-max scales of an activation, with one zero point for all channels.

    It is the one of several candidates with the least mean noise / signal. OpenVINO's fast depthwise kernel
    requires this (research: with per-channel zero points 26 of 30 convolutions of YOLOX-nano used a slower
    kernel).

    Args:
        observation: With a channel axis.
    """
    assert observation.axis is not None
    per_channel = affine(observation.low, observation.high, dtype, axis=observation.axis)
    bottom, top = stored_range(dtype)
    lower = np.minimum(observation.low.astype(np.float64), 0.0)
    upper = np.maximum(observation.high.astype(np.float64), 0.0)
    candidates = []
    for zero in np.unique(np.quantile(per_channel.zero_point, np.linspace(0, 1, 9)).astype(np.int64)):
        # If the zero point is at the end of the range, values beyond it are clipped.
        scale = np.maximum(upper / max(top - zero, 1), -lower / max(zero - bottom, 1))
        covering = affine(scale * (bottom - zero), scale * (top - zero), dtype, axis=observation.axis)
        candidates.append(Affine(covering.scale, np.full(scale.shape, zero, dtype), dtype, observation.axis))
    return min(candidates, key=lambda candidate: channel_noise(observation, candidate))


def channel_noise(observation: Observation, affine: Affine) -> float:
    """Compute the mean over the channels of noise / signal: mean squared error of the sample / its variance.

    A channel counts at most 1. A constant channel counts 0: its error is a constant that the next layer's
    bias absorbs.
    """
    sample = observation.sample
    along = Affine(affine.scale, affine.zero_point, affine.dtype, None if affine.axis is None else 1)
    noise = np.square(fake_quantize(sample, along) - sample).mean(0, dtype=np.float64)
    signal = sample.var(0, dtype=np.float64)
    varies = signal > 1e-6 * np.square(sample).mean(0, dtype=np.float64)
    ratio = np.divide(noise, signal, out=np.zeros_like(noise), where=varies)
    return float(np.minimum(ratio, 1.0).mean())


def _errors_of_ranges(
    observation: Observation,
    power: int,
    dtype: Dtype,
    symmetric: bool,
    after: Callable[[Array], Array] | None,
) -> Errors:
    """Return a function of the ends of n ranges, [n] each, that returns the sum of |error|^power of each, up
    to a constant factor."""
    sample = thinned(observation.sample, RANGE_VALUES).ravel()
    ends = np.concatenate([observation.low, observation.high])
    count = observation.count or len(observation.sample)
    # The weight of one observed extreme relative to a sampled value; less if the sample contains extremes.
    weight = sample.size / (count * len(observation.low)) * (1 - len(observation.sample) / count)
    x = np.concatenate([sample, ends])
    exact = after(x) if after is not None else x
    # Errors in units of the widest value: their fourth power stays within float32.
    unit = np.float32(1.0 / max(float(np.abs(exact).max()), SMALLEST_SCALE))

    def error(affine: Affine) -> float:
        values = fake_quantize(x, affine)
        if after is not None:
            values = after(values)
        values -= exact
        values *= unit
        np.square(values, out=values)
        if power == 4:
            np.square(values, out=values)
        inner, outer = values[: sample.size], values[sample.size :]
        return float(inner.sum(dtype=np.float64)) + weight * float(outer.sum(dtype=np.float64))

    def errors(lows: Array, highs: Array) -> Array:
        candidates = affine(lows, highs, dtype, symmetric)
        pairs = zip(candidates.scale, candidates.zero_point, strict=True)
        return np.array([error(Affine(np.asarray(s), np.asarray(z), dtype)) for s, z in pairs])

    return errors


def _along(of_channels: Array, affine: Affine, rank: int) -> Array:
    """Scale or zero point, reshaped to broadcast against a tensor of this rank."""
    if affine.axis is None:
        return of_channels
    shape = [1] * rank
    shape[affine.axis] = -1
    return of_channels.reshape(shape)
