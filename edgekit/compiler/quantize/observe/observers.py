"""Tensor observers: the exact minimum and maximum of each channel, and a sample of positions x channels.

Every range rule, per tensor or per channel, is computed from these without a second pass. Memory does not
grow with the number of samples or the size of the tensor.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.channel_axis import CHANNELS_LIMIT, axis_by, axis_of_producer
from edgekit.tensor_spec import Array

SAMPLE_VALUES = 24_576
"""Approximate number of values sampled from a tensor: 34 MB for the 360 tensors of a detector."""
SAMPLE_POSITIONS = 64
"""Least number of sampled positions, if the tensor has them: for tensors of many channels."""
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True, eq=False)
class Observation:
    """The statistics of one tensor over the calibration set.

    Attributes:
        low, high: float32 [C]: the exact minimum and maximum of each channel.
        sample: float32 [positions, C]: all channels of some positions, spread over samples and tensor.
        axis: The tensor's channel axis (never negative); None if it was observed per tensor.
        count: Number of values of each channel; 0 if unknown.
    """

    low: Array
    high: Array
    sample: Array
    axis: int | None = None
    count: int = 0


class Observer:
    """Collects the observation of one tensor, one array at a time.

    Args:
        name: Name of the tensor; seeds the draw of positions.
        axis: The channel axis; None to observe per tensor.
        arrays: Number of arrays that will be passed to :meth:`update`.
    """

    def __init__(self, name: str, axis: int | None, arrays: int) -> None:
        self._seed, self._axis, self._arrays = zlib.crc32(name.encode()), axis, arrays
        self._low: Array | None = None
        self._high: Array | None = None
        self._rows: list[Array] = []
        self._shown = self._count = 0

    def update(self, array: Array, seed: str) -> None:
        """Add one array of floats.

        The result depends on the order of the arrays; callers sort them by ``seed`` to avoid that.

        Args:
            array: float16, float32 or float64, of any shape that has the axis; not empty.
            seed: Hexadecimal digest of the sample; with the tensor's name it seeds the draw of positions.
        """
        parts = _parts(array.astype(np.float32, copy=False), self._axis)
        low, high = parts.min((0, 2)), parts.max((0, 2))
        self._low = low if self._low is None else np.minimum(self._low, low)
        self._high = high if self._high is None else np.maximum(self._high, high)
        outer, channels, inner = parts.shape
        # Positions are divided among the arrays; with more arrays than positions, some contribute none.
        total = max(SAMPLE_VALUES // channels, SAMPLE_POSITIONS)
        share = (self._shown + 1) * total // self._arrays - self._shown * total // self._arrays
        chosen = _positions(outer * inner, share, (self._seed ^ int(seed[:8], 16)) / 2**32)
        self._rows.append(parts[chosen // inner, :, chosen % inner])
        self._shown += 1
        self._count += outer * inner

    @property
    def finite(self) -> bool | None:
        """Return whether all values so far are finite; None if some are NaN."""
        if self._low is None or self._high is None:
            return True
        low, high = float(self._low.min()), float(self._high.max())
        return None if math.isnan(low) or math.isnan(high) else math.isfinite(low) and math.isfinite(high)

    def observation(self) -> Observation:
        """Return the statistics of all arrays; at least one must have been added."""
        assert self._low is not None
        assert self._high is not None
        return Observation(self._low, self._high, np.concatenate(self._rows), self._axis, self._count)


def pool(observations: Sequence[Observation]) -> Observation:
    """Merge tensors that share a scale into one channel, with about as many values from each."""
    if len(observations) == 1 and observations[0].axis is None:
        return observations[0]
    share = SAMPLE_VALUES // len(observations)
    return Observation(
        np.stack([o.low.min() for o in observations]).min(keepdims=True),
        np.stack([o.high.max() for o in observations]).max(keepdims=True),
        np.concatenate([thinned(o.sample, share).reshape(-1, 1) for o in observations]),
        None,
        sum(o.count * len(o.low) for o in observations),
    )


def thinned(sample: Array, values: int) -> Array:
    """Return about ``values`` values of a sample [positions, C]: evenly spread positions, at least one."""
    step = -(-sample.size // max(values, 1))
    return sample[:: min(max(step, 1), max(len(sample), 1))]


def channel_axis(value: ir.Value) -> int | None:
    """Return the channel axis of a value, for per-channel scales.

    Consumers decide before the producer, because they read the scales. Convolutions, pools and other ops with
    channels second: 1. MatMul, Gemm and normalizations of the last axis: the last. Without such a neighbour:
    1 for rank 4 and up (images), the last for rank 3 (tokens x features) and below. None if the value is a
    scalar, or has more than CHANNELS_LIMIT channels there.
    """
    rank = len(value.shape) if value.shape is not None else 0
    if value.shape is None or rank == 0:
        return None
    readers = {use.node.op_type for use in value.uses()}
    axis = axis_by(readers, rank)
    if axis is None:
        axis = axis_of_producer(value)
    if axis is None:
        axis = 1 if rank >= 4 else rank - 1
    channels = value.shape[axis]
    return axis if isinstance(channels, int) and channels <= CHANNELS_LIMIT else None


def _parts(array: Array, axis: int | None) -> Array:
    """Reshape the array to [before the axis, channels, after the axis]."""
    if axis is None:
        return array.reshape(1, 1, -1)
    return array.reshape(math.prod(array.shape[:axis]), array.shape[axis], -1)


def _positions(count: int, share: int, start: float) -> Array:
    """Return ``share`` of ``count`` positions, spread evenly, without a period that could match a row.

    Multiples of the golden ratio modulo 1, which fill [0, 1) evenly for any number of them.
    """
    if share >= count:
        return np.arange(count)
    return (((start + np.arange(share) * _GOLDEN) % 1.0) * count).astype(np.int64)
