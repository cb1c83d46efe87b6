"""Bounds of Clip, the slope of PRelu, the exponent of Pow, the statistics of BatchNormalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edgekit.compiler.lowering.index_arguments import NodeInput
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array

FLOAT32_MAX = float(np.finfo(np.float32).max)


class ClipBounds(NamedTuple):
    """The bounds of a Clip; one that is left out is infinite, one that the model computes is None."""

    low: float | None
    high: float | None

    @property
    def ends(self) -> tuple[float, float] | None:
        """Return constant bounds, infinite if float32 has no number beyond them; None for computed ones."""
        if self.low is None or self.high is None:
            return None
        low = -np.inf if self.low <= -FLOAT32_MAX else self.low
        return low, np.inf if self.high >= FLOAT32_MAX else self.high


def clip_bounds(minimum: NodeInput | None, maximum: NodeInput | None) -> ClipBounds:
    """Return the inputs ``min`` and ``max`` of a Clip."""

    def bound(value: NodeInput | None, default: float) -> float | None:
        if value is None:
            return default
        return None if value.const is None else float(value.const.reshape(()))

    return ClipBounds(bound(minimum, -np.inf), bound(maximum, np.inf))


def slope_along(slope: NodeInput, data_shape: Sequence[int], axis: int) -> Array | None:
    """Return a constant PRelu slope that varies along ``axis`` only, float32 [data_shape[axis]], or None."""
    if slope.const is None:
        return None
    full = slope.const.reshape((1,) * (len(data_shape) - len(slope.shape)) + tuple(slope.shape))
    if any(n != 1 for a, n in enumerate(full.shape) if a != axis):
        return None
    return np.broadcast_to(full.ravel(), (data_shape[axis],)).astype(np.float32)


def scalar_exponent(exponent: NodeInput, data_rank: int) -> float | None:
    """Return the one constant exponent of a Pow that does not broadcast its base; else None."""
    if exponent.const is None or exponent.const.size != 1 or len(exponent.shape) > data_rank:
        return None
    return float(exponent.const.ravel()[0])


def batch_norm_factors(
    data_rank: int,
    scale: NodeInput,
    bias: NodeInput,
    mean: NodeInput,
    variance: NodeInput,
    epsilon: float,
) -> tuple[Array, Array] | None:
    """Return BatchNormalization's factor and offset, float32 [C, 1, ...]; None if the model computes one."""
    if any(parameter.const is None for parameter in (scale, bias, mean, variance)):
        return None
    gamma, beta, means, spread = (np.asarray(v.const, np.float64) for v in (scale, bias, mean, variance))
    factor = gamma / np.sqrt(spread + epsilon)
    shape = (-1, *(1,) * (data_rank - 2))
    return factor.reshape(shape).astype(np.float32), (beta - means * factor).reshape(shape).astype(np.float32)


def refuse_random_dropout(training_mode: NodeInput | None) -> None:
    """Reject Dropout in training mode; at inference it returns its input.

    Raises:
        Inexpressible: training_mode is on, or the model computes it.
    """
    if training_mode is not None and (training_mode.const is None or bool(training_mode.const)):
        raise Inexpressible(
            "training_mode is on or unknown, so its output is random; export the model for inference"
        )
