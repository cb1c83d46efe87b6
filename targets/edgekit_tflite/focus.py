"""Slices of an image that are joined again as channels, seen as what they are: one rearrangement.

    x[:, :, 0::2, 0::2] -.
    x[:, :, 1::2, 0::2] -+- Concat(axis=1)   ->   Reshape, Transpose, Reshape (one TRANSPOSE in TFLite)
    x[:, :, 0::2, 1::2] -+
    x[:, :, 1::2, 1::2] -'

YOLOX and YOLOv5 start so ("Focus"). The four strided slices cost more than the convolution after them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from edgekit.compiler.model.sliding_windows import Window
from edgekit_tflite.builder import Builder, Value
from edgekit_tflite.layout import channels_last

MOST_CHANNELS = 4
"""With more channels than these a pixel alone fills a group."""


def space_to_depth(b: Builder, parts: Sequence[Value], axis: int) -> Value | None:
    """Return the Concat of ``parts`` along the channels as one rearrangement of their source, or None."""
    views = [part.view for part in parts]
    first = views[0]
    if first is None or axis != 1 or parts[0].rank != 4 or len(parts) < 4:
        return None
    source, size = first.source, first.step[2]
    n, c, h, w = source.shape
    if size**2 != len(parts) or h % size or w % size:
        return None
    offsets = []
    for part, view in zip(parts, views, strict=True):
        if view is None or view.source.tensor != source.tensor or view.source.perm != source.perm:
            return None
        if view.step != (1, 1, size, size) or view.begin[:2] != (0, 0):
            return None
        if part.shape != (n, c, h // size, w // size):
            return None
        offsets.append(view.begin[2:])
    rows_first = [(row, column) for row in range(size) for column in range(size)]
    columns_first = [(row, column) for column in range(size) for row in range(size)]
    apart = (n, c, h // size, size, w // size, size)
    if offsets == rows_first:
        order = (0, 3, 5, 1, 2, 4)
    elif offsets == columns_first:
        order = (0, 5, 3, 1, 2, 4)
    else:
        return None
    assert b.node is not None
    rearranged = b.transpose(b.reshape(source, apart), order)
    shape = (n, c * size**2, h // size, w // size)
    return b.reshape(rearranged, shape, prefer=b.demand())


def blocks_as_channels(
    b: Builder, x: Value, weights: Value, frame: Window
) -> tuple[Value, Value, Window] | None:
    """Return a Conv over blocks of pixels for one whose windows step and reach by whole blocks, or None.

    The same products, with more channels and fewer positions: integer kernels take channels by groups of 4 to
    16, and an image has 3. 6x6 by 2 over 3 channels becomes 3x3 over 12.
    """
    size = frame.stride[0]
    if weights.const is None or weights.shape[1] != x.shape[1] or weights.shape[1] > MOST_CHANNELS:
        return None
    if size == 1 or frame.stride[1] != size or frame.dilation != (1, 1):
        return None
    if any(n % size for n in (*frame.kernel, *frame.size, *frame.begin)) or min(frame.kernel) == size:
        return None
    n, c, h, w = x.shape
    rows, columns = (k // size for k in frame.kernel)
    shape = (n, c * size**2, h // size, w // size)
    apart = b.reshape(x, (n, c, h // size, size, w // size, size))
    blocks = b.reshape(b.transpose(apart, (0, 3, 5, 1, 2, 4)), shape, prefer=channels_last(4))
    taps = weights.const.reshape(weights.shape[0], c, rows, size, columns, size).transpose(0, 3, 5, 1, 2, 4)
    joined = replace(
        weights,
        shape=(weights.shape[0], shape[1], rows, columns),
        const=taps.reshape(weights.shape[0], shape[1], rows, columns),
    )
    begin, end = (tuple(pad // size for pad in pads) for pads in (frame.begin, frame.declared_end))
    return blocks, joined, Window(shape[2:], frame.out, (rows, columns), (1, 1), (1, 1), begin, end)
