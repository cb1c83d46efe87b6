"""Outputs whose channels cannot share one scale: they are not stored in int8.

    Conv [4 channels of 300, 28 of 1] -> Q -> DQ -> output      28 channels are 0
    Conv in float                     -> output

No later product averages the noise of such a value, and no other value makes up for a channel that is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.rewriting import array_of
from edgekit.compiler.quantize.numerics import fake_quantize
from edgekit.compiler.quantize.observe.observers import Observation
from edgekit.compiler.quantize.placement.kernels import Kernel
from edgekit.compiler.quantize.recipe import Affine
from edgekit.tensor_spec import Array

NOISE_LIMIT = 0.03
"""Largest noise / signal of a channel: 15 dB. It needs 12 (``channel_snr.py``), with its weights' noise."""
VARIANCE_LIMIT = 0.5
"""Largest noise / variance of a channel, whose mean does not count. It is 1 if the channel is constant."""
VARYING_SHARE = 0.05
"""A channel varies if its standard deviation is more of its magnitude. A smaller variation is left to the
search."""
SMALL_SCORE = 1 / 64
"""A score is not smaller than this for its noise: most classes are at a score near 0 in all samples."""
MIXING = frozenset(
    {
        "Attention", "Conv", "ConvTranspose", "Einsum", "GRU", "Gemm", "LSTM", "LayerNormalization",
        "LogSoftmax", "MatMul", "RMSNormalization", "RNN", "Softmax",
    }
)  # fmt: skip
"""Operators that compute a value from all channels."""


def kernels_of_unlike_outputs(
    model: ir.Model,
    kernels: Sequence[Kernel],
    activations: Mapping[str, Affine],
    observations: Mapping[str, Observation],
    curve_after: Callable[[ir.Value], Callable[[Array], Array] | None],
) -> set[str]:
    """Return the kernels that store a value in int8 whose channels cannot share its scale, if the value
    reaches an output of the model without a product of weights.

    Kernels that cannot write floats are returned for their outputs, kernels without weights for their inputs.
    ``curve_after`` returns the activation that is a value's only consumer: noise is measured behind it.
    """
    reaching = _reaching_outputs(model, kernels)
    # A score, from 0 to 1, has the steps of its unit: that it is near 0 in all samples does not matter.
    scores = {
        id(affine)
        for kernel in kernels
        if kernel.rule.output == "fixed"
        for value in kernel.outputs
        if (affine := activations.get(str(value.name))) is not None and _starts_at_zero(affine)
    }

    def is_lost(value: ir.Value) -> bool:
        name = str(value.name)
        affine = activations.get(name)
        if affine is None or name not in reaching or id(affine) in scores:
            return False
        return _is_lost(observations.get(name), affine, curve_after(value))

    return {
        kernel.name
        for kernel in kernels
        if (kernel.rule.output != "asked" and any(map(is_lost, kernel.outputs)))
        or (kernel.rule.weight is None and any(is_lost(v) for v in kernel.inputs if array_of(v) is None))
    }


def _reaching_outputs(model: ir.Model, kernels: Sequence[Kernel]) -> Collection[str]:
    """Return the values that reach an output without a product, a normalization or an int8 sum."""
    sums = {
        node for k in kernels for node in k.nodes if len([v for v in k.inputs if array_of(v) is None]) > 1
    }
    reaching = {str(value.name) for value in model.graph.outputs}
    for node in reversed(model.graph):
        if not any(str(value.name) in reaching for value in node.outputs):
            continue
        read = [value for value in node.inputs if value is not None]
        if node.op_type in MIXING or (node in sums and node.op_type != "Concat"):
            continue
        reaching.update(str(value.name) for value in read)
    return reaching


def _starts_at_zero(affine: Affine) -> bool:
    return bool(affine.zero_point == np.iinfo(affine.dtype).min)


def _is_lost(observation: Observation | None, affine: Affine, curve: Callable[[Array], Array] | None) -> bool:
    """Return whether some channel is lost in the noise of the scale."""
    if observation is None or observation.axis is None or affine.axis is not None:
        return False
    sample, stored = observation.sample, fake_quantize(observation.sample, affine)
    floor = 0.0
    if curve is not None:  # what saturates behind the curve does not matter
        low, high = curve(np.array([-1e3, 1e3], np.float32)).tolist()
        is_score = low >= 0 and high <= 1
        sample, stored, floor = curve(sample), curve(stored), SMALL_SCORE if is_score else 0.0
    noise = np.square(stored - sample).mean(0, dtype=np.float64)
    power, variance = np.square(sample).mean(0, dtype=np.float64), sample.var(0, dtype=np.float64)
    varies = variance > np.maximum(VARYING_SHARE**2 * power, (floor / 8) ** 2)
    power = np.maximum(power, floor**2)
    return bool(((noise > NOISE_LIMIT * power) | (noise > VARIANCE_LIMIT * variance))[varies].any())
