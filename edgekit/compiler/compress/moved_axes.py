"""Position of a value's labelled axis after a Reshape or a reduction."""

from __future__ import annotations

from math import prod

import numpy as np

from edgekit.compiler.compress.channel_labels import ChannelLabels, Labels
from edgekit.tensor_spec import Array


def after_reshape(
    input_labels: Labels, source: tuple[int, ...], dims: tuple[int, ...], labels: ChannelLabels
) -> Labels | None:
    """Return the labels after a Reshape, or None if they have no axis of their own.

        [N, C, H, W] -> [N, C * H * W]    each label is repeated H * W times
        [N, L, H * D] -> [N, L, H, D]     the D channels of a head are tied

    Args:
        input_labels: Labels of the input.
        source: Shape of the input.
        dims: Shape of the output.
        labels: Labels of the graph, in which the channels of a head are tied.
    """
    before, count = prod(source[: input_labels.axis]), len(input_labels.ids)
    after = prod(source[input_labels.axis + 1 :])
    for axis, size in enumerate(dims):
        if prod(dims[:axis]) != before or (size == 1 and count > 1):
            continue
        if size % count == 0 and size // count * prod(dims[axis + 1 :]) == after:
            return Labels(axis, np.repeat(input_labels.ids, size // count))
        if count % size == 0 and prod(dims[axis + 1 :]) == after * (count // size):
            return Labels(axis, labels.tie_blocks(input_labels.ids.reshape(size, -1)))
    return None


def after_reduction(axis: int, axes: Array | None, rank: int, keep: bool) -> int | None:
    """Return the labelled axis after a reduction over ``axes``, or None if it is reduced itself."""
    if axes is None:
        return None
    reduced = {int(one) % rank for one in axes.ravel()}
    if axis in reduced:
        return None
    return axis if keep else axis - sum(1 for one in reduced if one < axis)
