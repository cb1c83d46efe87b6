"""mAP of oriented boxes on labelled ones, by probabilistic IoU as Ultralytics' ``val``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from edgekit.compiler.evaluate.label_files.boxes import LabelledBoxes, read_boxes
from edgekit.compiler.evaluate.label_metric import LabelledSamples, LabelMetric
from edgekit.errors import SampleError
from edgekit.processing.card import Card
from edgekit.processing.predictions.obb import OrientedDetections
from edgekit.tasks.detect.accuracy import Measured, measured, score
from edgekit.tasks.detect.metric import VARIANT_SCORE_THRESHOLD
from edgekit.tasks.obb.yolo import probabilistic_iou
from edgekit.tensor_spec import Array


def read_oriented(folder: Path, card: Card) -> LabelledSamples:
    """Read labelled objects with an outline of four corners.

    Raises:
        SampleError: an object has another outline, or none.
    """
    labelled = read_boxes(folder, card)
    for sample in labelled.samples:
        for outline in sample.label.outlines:
            if not isinstance(outline, list) or len(outline) != 1 or len(outline[0]) != 8:
                raise SampleError(
                    f"{sample.name}: an object of the {labelled.form} does not have four corners; use YOLO "
                    "text files of lines 'class x1 y1 x2 y2 x3 y3 x4 y4', or such polygons in COCO JSON"
                )
    return labelled


def measure(truth: LabelledBoxes, prediction: OrientedDetections, card: Card) -> Measured:
    """Compare labelled and detected oriented boxes."""
    boxes = np.array([smallest_rectangle(outline) for outline in truth.outlines]).reshape(-1, 5)
    overlaps = probabilistic_iou(prediction.boxes.astype(np.float64), boxes)
    areas = prediction.boxes[:, 2:4].astype(np.float64).prod(axis=1)
    return measured(truth, prediction, areas, overlaps, boxes[:, 2:4].prod(axis=1))


def smallest_rectangle(outline: Any) -> Array:
    """Return the smallest rectangle around a convex outline of four corners.

    One of its sides has the direction of one of the outline's (Freeman and Shapira: Determining the
    minimum-area encasing rectangle for an arbitrary closed curve, 1975).

    Args:
        outline: A list of x1, y1 ... x4, y4, in a list.

    Returns:
        float64 [5]: centre x, centre y, width, height, angle in radians.
    """
    corners = np.array(outline[0], np.float64).reshape(4, 2)
    sides = np.roll(corners, -1, axis=0) - corners
    rectangles = []
    for angle in np.arctan2(sides[:, 1], sides[:, 0]):
        axes = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        along = corners @ axes.T
        low, high = along.min(axis=0), along.max(axis=0)
        rectangles.append(np.array([*((low + high) / 2 @ axes), *(high - low), angle]))
    return min(rectangles, key=lambda rectangle: float(rectangle[2] * rectangle[3]))


ACCURACY = LabelMetric(
    "mAP of oriented boxes",
    "objects",
    read_oriented,
    measure,
    score,
    options={"score": VARIANT_SCORE_THRESHOLD},
)
