"""Slices of an image that are joined again as channels, seen as what they are: one rearrangement.

    x[:, :, 0::2, 0::2] -.
    x[:, :, 1::2, 0::2] -+- Concat(axis=1)   ->   Reshape, Transpose, Reshape (one TRANSPOSE in TFLite)
    x[:, :, 0::2, 1::2] -+
    x[:, :, 1::2, 1::2] -'

YOLOX and YOLOv5 start so ("Focus"). The four strided slices cost more than the convolution behind them.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgekit_tflite.builder import Builder, Value


def space_to_depth(b: Builder, parts: Sequence[Value], axis: int) -> Value | None:
    """The Concat of ``parts`` along the channels as one rearrangement of what they are slices of, or None."""
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
    moved = b.transpose(b.reshape(source, apart), order)
    shape = (n, c * size**2, h // size, w // size)
    return b.reshape(moved, shape, prefer=b.demand())
