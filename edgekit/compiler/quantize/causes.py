"""Why plain int8 or float16 loses accuracy, value by value, from the ranges of the calibration.

Plain int8 stores a value with one scale from its minimum to its maximum. The cost is
``numerics.channel_noise``: the mean over the channels of noise / signal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, log10

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.rewriting import array_of
from edgekit.compiler.quantize.numerics import affine, channel_noise
from edgekit.compiler.quantize.observe.observers import Observation, pool
from edgekit.compiler.quantize.placement.kernels import Kernel, find_kernels, is_depthwise
from edgekit.compiler.quantize.recipe import Affine, QuantizationPlan
from edgekit.compiler.quantize.weights.weight_matrix import product_of
from edgekit.target.quant_rules import Rules
from edgekit.tensor_spec import Array

OUTLIERS = "outlier range"
"""A few values are far beyond the others of their own channel, and take the steps from these."""
NARROW = "narrow channel"
"""Channels of one value differ so much that the narrow ones get a step or two."""
DEPTHWISE = "depthwise range"
"""The same if a depthwise Conv reads it: no sum over channels averages that noise away."""
PER_TENSOR = "per-tensor weight"
"""Output channels of a weight differ so much that one scale for all of them loses the small ones."""
MIXED = "mixed-scale concat"
"""Values that share one scale, because an operator only moves them, differ much in range."""
HEADROOM = "float16 headroom"
"""A value comes near the largest that float16 holds, or is beyond it."""

NOISY = 0.05
"""Noise / signal, 13 dB, from which on a value is told of. As ``ChannelNoise.above`` of the targets."""
FAR = 8.0
"""An extreme so many times what holds OFTEN of its channel is an outlier. Of 1e6 normal values it is 2."""
OFTEN = 0.99
HALF_MAX = 65504.0
"""The largest finite float16 (IEEE 754 binary16)."""
MARGIN = 2.0
"""Samples are not all inputs: a value that comes within this factor of HALF_MAX is told of."""


@dataclass(frozen=True)
class LossCause:
    """Reason for the accuracy loss of one value or weight.

    Attributes:
        kind: One of the classes above.
        value: Name of the value in the canonical graph; for a weight, the first output of its node.
        nodes: First outputs of the kernels that read the value; for a concat, its own first output.
        narrow, wide: Largest magnitudes of the narrowest and of the widest channel (or input of a concat,
            or output channel of a weight). For an outlier: the magnitude that OFTEN of the values keep
            within, and the largest. For float16: the largest, and HALF_MAX.
        noise: Noise / signal with one scale, 0 to 1; for float16, the largest magnitude over HALF_MAX.
    """

    kind: str
    value: str
    nodes: tuple[str, ...]
    narrow: float
    wide: float
    noise: float


def int8_causes(model: ir.Model, observations: Mapping[str, Observation], rules: Rules) -> list[LossCause]:
    """Return the causes of the accuracy loss of plain int8 with these rules, the worst first."""
    kernels = find_kernels(model, rules)
    readers: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        for value in kernel.inputs:
            if str(value.name) in observations and array_of(value) is None:
                readers.setdefault(str(value.name), []).append(kernel)
    causes = [
        cause
        for name, reading in readers.items()
        if (cause := _of_value(name, observations[name], reading, rules)) is not None
    ]
    for kernel in kernels:
        causes += [*_of_weight(kernel), *_of_concat(kernel, observations, rules)]
    return sorted(causes, key=lambda cause: (-cause.noise, cause.value))


def float16_causes(observations: Mapping[str, Observation]) -> list[LossCause]:
    """Return the values that overflow in float16, or may on other inputs; the largest first."""
    causes = []
    for name, observation in observations.items():
        largest = float(_largest(observation).max())
        if largest * MARGIN > HALF_MAX:
            causes.append(LossCause(HEADROOM, name, (name,), largest, HALF_MAX, largest / HALF_MAX))
    return sorted(causes, key=lambda cause: (-cause.noise, cause.value))


def snr_db(noise: float) -> float | None:
    """Convert noise / signal to an SNR in dB; None if there is no noise.

    >>> snr_db(0.05), snr_db(0.0)
    (13.0, None)
    """
    return round(-10 * log10(noise), 1) if 0 < noise < inf else None


def plain_affine(observation: Observation, rules: Rules) -> Affine:
    """Return quantization parameters with one scale from the minimum to the maximum."""
    return affine(observation.low.min(), observation.high.max(), rules.activations, rules.symmetric)


def remedy(
    cause: LossCause,
    observations: Mapping[str, Observation],
    prepared: Mapping[str, Observation],
    plan: QuantizationPlan,
) -> tuple[str, float | None]:
    """Describe a plan's remedy for a cause, and return the remaining noise / signal; None in float.

    Args:
        prepared: Observations of the graph that the plan applies to, after its rewrites.
    """
    quantized = [name for name in cause.nodes if name in plan.nodes]
    if not quantized:
        return "kept in float", None
    if cause.kind == PER_TENSOR:
        (weights,) = (plan.weights[name] for name in quantized)
        if weights.affine.axis is None:
            return "not repaired: this target supports one scale per weight only", cause.noise
        return "a scale for each output channel", None
    quantization = plan.activations.get(cause.value)
    if quantization is None:
        return "kept in float", None
    observed = prepared.get(cause.value, observations[cause.value])
    left = channel_noise(observed, quantization)
    if observed is not observations[cause.value]:
        return "computed twice, with a scale for each channel in the weights", left
    if quantization.axis is not None:
        return "a scale for each channel", left
    if cause.kind == MIXED:
        return "not repaired: its inputs share one scale", left
    steps = {"int8": 255, "uint8": 255}.get(quantization.dtype, 65535)
    width = float(quantization.scale.reshape(())) * steps
    whole = float(observed.high.max() - observed.low.min())
    if width < 0.9 * whole:
        return f"the range is cut to {width:.4g}", left
    return "not repaired", left


def without_repairs(rules: Rules) -> Rules:
    """Return the rules of a target for plain int8: all channels share a scale, whatever the noise."""
    rewrites = tuple(name for name in rules.rewrites if name != "split SiLU")
    return replace(rules, channel_noise=None, rewrites=rewrites)


def _of_value(
    name: str, observation: Observation, reading: Sequence[Kernel], rules: Rules
) -> LossCause | None:
    noise = channel_noise(observation, plain_affine(observation, rules))
    if noise <= NOISY:
        return None
    nodes = tuple(kernel.name for kernel in reading)
    largest = _largest(observation)
    if (typical := _usual_magnitude(observation)) is not None:
        return LossCause(OUTLIERS, name, nodes, typical, float(largest.max()), noise)
    kind = DEPTHWISE if all(is_depthwise(kernel.nodes[0]) for kernel in reading) else NARROW
    largest = largest[_vary(observation)]
    return LossCause(kind, name, nodes, float(largest.min()), float(largest.max()), noise)


def _largest(observation: Observation) -> Array:
    largest: Array = np.maximum(-observation.low, observation.high)
    return largest


def _vary(observation: Observation) -> Array:
    """Mark the channels that are not constant, like ``channel_noise``; all of them if none varies."""
    spread = observation.sample.var(0, dtype=np.float64) > 1e-6 * np.square(observation.sample).mean(
        0, dtype=np.float64
    )
    return spread if spread.any() else np.ones_like(spread)


def _usual_magnitude(observation: Observation) -> float | None:
    """Return the magnitude that OFTEN of all values keep within, if only outliers make the range wide; None
    if a channel is that wide by its ordinary values."""
    largest = _largest(observation)
    often = np.quantile(np.abs(observation.sample), OFTEN, axis=0)
    wide = largest > largest.max() / 2
    if not bool((largest[wide] > FAR * often[wide]).all()):
        return None
    return float(np.quantile(np.abs(observation.sample), OFTEN))


def _of_weight(kernel: Kernel) -> Iterator[LossCause]:
    """Yield a weight's noise with one scale: step^2 / 12 over the mean square of each output channel."""
    product = product_of(kernel.nodes[0], kernel.rule)
    if product is None or product.channel_axis is None:
        return
    matrix = product.matrix()
    rows = matrix.reshape(-1, matrix.shape[2])
    largest, power = np.abs(rows).max(1), np.square(rows).mean(1)
    used = largest > 0
    if not used.any():
        return
    noise = np.minimum((largest.max() / 127) ** 2 / 12 / power[used], 1.0).mean()
    if noise > NOISY:
        smallest = float(largest[used].min())
        yield LossCause(PER_TENSOR, kernel.name, (kernel.name,), smallest, float(largest.max()), float(noise))


def _of_concat(kernel: Kernel, observations: Mapping[str, Observation], rules: Rules) -> Iterator[LossCause]:
    """Yield the noisiest input of a concat, if its own scale instead of the shared one removes the noise."""
    names = [str(v.name) for v in kernel.inputs if str(v.name) in observations]
    if kernel.rule.output != "inputs" or len(names) < 2:
        return
    observed = [observations[name] for name in names]
    shared = plain_affine(pool(observed), rules)
    noises = [channel_noise(observation, shared) for observation in observed]
    separate = [channel_noise(observation, plain_affine(observation, rules)) for observation in observed]
    worst = int(np.argmax(np.subtract(noises, separate)))
    if noises[worst] > NOISY and separate[worst] < noises[worst] / 4:
        largest = [float(_largest(observation).max()) for observation in observed]
        yield LossCause(MIXED, names[worst], (kernel.name,), largest[worst], max(largest), noises[worst])
