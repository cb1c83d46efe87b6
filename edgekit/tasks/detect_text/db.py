"""Text detection by differentiable binarization: a map of how likely each pixel is text.

Liao et al., Real-time Scene Text Detection with Differentiable Binarization, arXiv 1911.08947, and its
post-processing in PaddleOCR (``ppocr/postprocess/db_postprocess.py``), to whose boxes the tests hold this
one. PaddleOCR needs OpenCV, pyclipper and shapely for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.errors import EngineError
from edgekit.processing.geometry.components import connected_components
from edgekit.processing.geometry.filled import quadrilateral_means
from edgekit.processing.geometry.rectangles import enlarge, hulls, in_order, smallest_rectangles
from edgekit.processing.predictions.detect_text import TextRegions
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.task_decoder import Decoder, Outputs, at_least, within
from edgekit.tensor_spec import Array

LEAST_SIDE = 3
"""Minimum pixels of a text component in the map. PaddleOCR's ``min_size``."""
LEAST_FRAME_SIDE = 3
"""A region is wider and higher than so many pixels of the frame."""
SAME_LINE = 10
"""Pixels of the frame between the tops of two regions of one line: PaddleOCR's ``sorted_boxes``."""


@dataclass(frozen=True)
class DbOptions:
    """Options for finding text regions.

    Attributes:
        threshold: Minimum value of a text pixel.
        score: Minimum mean of the map within a region.
        unclip: Growth factor of a region: it grows by area x unclip / perimeter, because the network is
            trained on shrunken regions.
        dilate: Whether pixels right of and below text also count as text, which joins letters of thin type.
        top: Maximum number of regions; those with the most pixels are kept.
    """

    threshold: float = 0.3
    score: float = 0.6
    unclip: float = 1.5
    dilate: bool = False
    top: int = 1000

    def __post_init__(self) -> None:
        at_least(1, top=self.top)
        within(0, 1, threshold=self.threshold, score=self.score)
        within(0, 10, unclip=self.unclip)


def detect_text(
    outputs: Outputs, options: DbOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> TextRegions:
    """``map`` [1, 1, h, w] or [1, h, w, 1], 0 to 1, of the input's proportions."""
    values = outputs["map"]
    if values.ndim != 4 or values.shape[0] != 1 or 1 not in values.shape[1::2] or not values.size:
        raise EngineError(f"a text map is [1, 1, height, width], but the output is {list(values.shape)}")
    plane = values[0, 0] if values.shape[1] == 1 else values[0, :, :, 0]
    corners, scores = _regions(plane, options)
    scale = np.array([placed.input_width, placed.input_height]) / np.array(plane.shape[::-1])
    return _in_frame(corners * scale, scores, placed)


def _regions(plane: Array, options: DbOptions) -> tuple[Array, Array]:
    """Compute the corners of regions, float64 [n, 4, 2] in the map's pixels, and their scores, float64
    [n]."""
    mask = plane > options.threshold
    if options.dilate:
        mask[1:] |= mask[:-1]
        mask[:, 1:] |= mask[:, :-1]
    corners, side = _rectangles(mask, options.top)
    corners = corners[side >= LEAST_SIDE]
    scores = quadrilateral_means(plane, corners)
    sure = scores >= options.score
    corners, scores = corners[sure], scores[sure]
    if not len(corners) or not options.unclip:
        return corners, scores
    wide, high = (np.linalg.norm(corners[:, 0] - corners[:, other], axis=1) for other in (1, 3))
    points = enlarge(corners, wide * high * options.unclip / (2 * (wide + high)))
    owner = np.repeat(np.arange(len(points)), points.shape[1])
    outline = points.reshape(-1, 2)
    corners, side = smallest_rectangles(hulls(outline[:, 0], outline[:, 1], owner, len(points)))
    large = side >= LEAST_SIDE + 2
    return corners[large], scores[large]


def _rectangles(mask: Array, top: int) -> tuple[Array, Array]:
    runs = connected_components(mask)
    if not runs.total:
        return np.zeros((0, 4, 2)), np.zeros(0)
    order = np.argsort(runs.component, kind="stable")  # a component's runs stay in the order of their rows
    row, first, last, component = (array[order] for array in runs[:4])
    starts = np.flatnonzero(np.append(True, component[1:] != component[:-1]))
    ends = np.append(starts[1:], len(component)) - 1
    wide = np.maximum.reduceat(last, starts) - np.minimum.reduceat(first, starts)
    high = row[ends] - row[starts]
    # The smallest rectangle has no more area than the upright one: below LEAST_SIDE^2 a side is too short.
    selected = wide * high >= LEAST_SIDE**2
    if selected.sum() > top:
        pixels = np.where(selected, np.add.reduceat(last - first + 1, starts), 0)
        selected[np.argsort(-pixels, kind="stable")[top:]] = False
    number = np.cumsum(selected) - 1
    chosen = selected[component]
    row, first, last, group = row[chosen], first[chosen], last[chosen], number[component[chosen]]
    if not len(row):
        return np.zeros((0, 4, 2)), np.zeros(0)
    x, y, owner = np.concatenate([first, last]), np.concatenate([row, row]), np.concatenate([group, group])
    return smallest_rectangles(hulls(x, y, owner, int(selected.sum())))


def _in_frame(corners: Array, scores: Array, placed: ImagePlacement) -> TextRegions:
    """Map regions [n, 4, 2] from the input to the frame, in reading order. Slivers at the frame's edge are
    left out."""
    frame_corners = placed.to_frame(corners.reshape(-1, 8)).reshape(-1, 4, 2)
    last = np.array([placed.frame_width - 1, placed.frame_height - 1])
    ordered = np.minimum(in_order(frame_corners), last)
    wide, high = (np.linalg.norm(ordered[:, 0] - ordered[:, other], axis=1) for other in (1, 3))
    large = (wide > LEAST_FRAME_SIDE) & (high > LEAST_FRAME_SIDE)
    ordered, scores = ordered[large], scores[large]
    order = _reading_order(ordered[:, 0])
    return TextRegions(ordered[order].astype(np.float32), scores[order].astype(np.float32))


def _reading_order(tops: Array) -> Array:
    """Compute the order from top to bottom. Neighbours whose tops are within SAME_LINE are ordered from left
    to right (``sorted_boxes``)."""
    order = np.lexsort((tops[:, 0], tops[:, 1])).tolist()
    xs, ys = tops[:, 0].tolist(), tops[:, 1].tolist()
    for end in range(1, len(order)):
        for position in range(end, 0, -1):
            one, other = order[position - 1], order[position]
            if abs(ys[other] - ys[one]) >= SAME_LINE or xs[other] >= xs[one]:
                break
            order[position - 1], order[position] = other, one
    return np.array(order, np.int64)


DECODERS: Mapping[str, Decoder] = {"db": Decoder(DbOptions, detect_text, ("map",))}
