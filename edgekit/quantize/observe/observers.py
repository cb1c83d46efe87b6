"""What is remembered of a tensor: the exact ends of each channel, and a sample of positions x channels.

From these every range rule is answered afterwards without a second pass, for the tensor and for its channels.
The memory does not grow with the number of samples or the size of the tensor.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from edgekit.tensors import Array

if TYPE_CHECKING:
    import onnx_ir as ir

SAMPLE_VALUES = 24_576
"""Values remembered of a tensor, about: those of a detector's 360 tensors take 34 MB."""
SAMPLE_POSITIONS = 64
"""At least so many positions, where the tensor has them: for tensors of many channels."""
CHANNELS_LIMIT = 16_384
"""A tensor with more channels (a vocabulary, a flattened map) is observed as one: nobody scales those."""

_GOLDEN = (5**0.5 - 1) / 2

_CHANNELS_SECOND = frozenset(
    {
        "AveragePool",
        "BatchNormalization",
        "Conv",
        "ConvTranspose",
        "DepthToSpace",
        "GlobalAveragePool",
        "GlobalMaxPool",
        "GroupNormalization",
        "InstanceNormalization",
        "LRN",
        "LpPool",
        "MaxPool",
        "Resize",
        "SpaceToDepth",
    }
)
_CHANNELS_LAST = frozenset({"Attention", "Gemm", "LayerNormalization", "MatMul", "RMSNormalization"})


@dataclass(frozen=True, eq=False)
class Observation:
    """What the samples showed of one tensor.

    Attributes:
        low: float32 [C]: the least value of each channel, exact.
        high: float32 [C]: the greatest value of each channel, exact.
        sample: float32 [positions, C]: all channels of some positions, spread over samples and tensor.
        axis: The tensor's axis of channels (never negative); None where it was observed as one channel.
        count: Values that were seen of each channel; 0 where unknown.
    """

    low: Array
    high: Array
    sample: Array
    axis: int | None = None
    count: int = 0


class Observer:
    """Collects the observation of one tensor, one array at a time.

    Args:
        name: The tensor's, which seeds the positions.
        axis: Of channels; None to observe all as one.
        arrays: How many arrays will be shown.
    """

    def __init__(self, name: str, axis: int | None, arrays: int) -> None:
        self._seed, self._axis, self._arrays = zlib.crc32(name.encode()), axis, arrays
        self._low: Array | None = None
        self._high: Array | None = None
        self._rows: list[Array] = []
        self._shown = self._count = 0

    def show(self, array: Array, seed: str) -> None:
        """Look at one array of floats.

        The result depends on the arrays and their order; who wants none of the order shows them sorted by
        ``seed``.

        Args:
            array: float16, float32 or float64, of any shape that has the axis; not empty.
            seed: Hexadecimal digits of what belongs to the array; they and the tensor's name choose the
                positions.
        """
        parts = _parts(array.astype(np.float32, copy=False), self._axis)
        low, high = parts.min((0, 2)), parts.max((0, 2))
        self._low = low if self._low is None else np.minimum(self._low, low)
        self._high = high if self._high is None else np.maximum(self._high, high)
        outer, channels, inner = parts.shape
        # Every array gives its share of the positions; where there are more arrays than positions, some none.
        total = max(SAMPLE_VALUES // channels, SAMPLE_POSITIONS)
        share = (self._shown + 1) * total // self._arrays - self._shown * total // self._arrays
        chosen = _positions(outer * inner, share, (self._seed ^ int(seed[:8], 16)) / 2**32)
        self._rows.append(parts[chosen // inner, :, chosen % inner])
        self._shown += 1
        self._count += outer * inner

    @property
    def finite(self) -> bool | None:
        """Whether all values so far are finite; None: some are not numbers."""
        if self._low is None or self._high is None:
            return True
        low, high = float(self._low.min()), float(self._high.max())
        return None if math.isnan(low) or math.isnan(high) else math.isfinite(low) and math.isfinite(high)

    def observation(self) -> Observation:
        """What was seen; at least one array was shown."""
        assert self._low is not None
        assert self._high is not None
        return Observation(self._low, self._high, np.concatenate(self._rows), self._axis, self._count)


def pool(observations: Sequence[Observation]) -> Observation:
    """Several tensors as one channel, for those that share a scale; each brings about as many values."""
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
    """About so many values of a sample [positions, C]: whole positions, evenly spread, at least one."""
    step = -(-sample.size // max(values, 1))
    return sample[:: min(max(step, 1), max(len(sample), 1))]


def channel_axis(value: ir.Value) -> int | None:
    """The axis of a value along which a target may scale: that of the channels of the ops around it.

    Who reads the value decides before who makes it, as a scale per channel serves the reader. Convolutions,
    pools and what else counts channels second: 1. MatMul, Gemm and normalizations of the last axis: the last.
    Without such a neighbour: 1 for rank 4 and up (images), the last for rank 3 (tokens x features) and below.
    None: the value is a scalar, or has more than CHANNELS_LIMIT channels there.
    """
    rank = len(value.shape) if value.shape is not None else 0
    if value.shape is None or rank == 0:
        return None
    producer = value.producer()
    readers = {use.node.op_type for use in value.uses()}
    axis = 1 if rank >= 4 else rank - 1
    for ops in (readers, {producer.op_type} if producer is not None else set()):
        if rank >= 2 and ops & _CHANNELS_SECOND:
            axis = 1
            break
        if ops & _CHANNELS_LAST:
            axis = rank - 1
            break
    channels = value.shape[axis]
    return axis if isinstance(channels, int) and channels <= CHANNELS_LIMIT else None


def _parts(array: Array, axis: int | None) -> Array:
    """The array as [before the axis, channels, behind the axis]."""
    if axis is None:
        return array.reshape(1, 1, -1)
    return array.reshape(math.prod(array.shape[:axis]), array.shape[axis], -1)


def _positions(count: int, share: int, start: float) -> Array:
    """``share`` of ``count`` positions, without a pattern that a row's length could fall in with.

    Multiples of the golden ratio modulo 1, which fill [0, 1) evenly however many are taken.
    """
    if share >= count:
        return np.arange(count)
    return (((start + np.arange(share) * _GOLDEN) % 1.0) * count).astype(np.int64)
