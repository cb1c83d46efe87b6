"""mAP of masks on labelled outlines, as COCO's evaluation of ``segm``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgekit.compiler.evaluate.label_files.boxes import LabelledBoxes, read_boxes
from edgekit.compiler.evaluate.label_files.outlines import mask_of
from edgekit.compiler.evaluate.label_metric import LabelledSamples, LabelMetric
from edgekit.errors import SampleError
from edgekit.processing.card import Card
from edgekit.processing.predictions.segment_instances import Instances
from edgekit.tasks.detect.accuracy import Measured, measured, score
from edgekit.tasks.detect.metric import VARIANT_SCORE_THRESHOLD
from edgekit.tasks.segment_instances.metric import mask_overlaps
from edgekit.tensor_spec import Array


def read_outlines(folder: Path, card: Card) -> LabelledSamples:
    """Read labelled objects with outlines.

    Raises:
        SampleError: an object has none.
    """
    labelled = read_boxes(folder, card)
    for sample in labelled.samples:
        if any(outline is None for outline in sample.label.outlines):
            raise SampleError(
                f"{sample.name}: an object of the {labelled.form} has no outline; use COCO JSON with "
                "segmentation, or YOLO text files of lines 'class x1 y1 x2 y2 ...'"
            )
    return labelled


def measure(truth: LabelledBoxes, prediction: Instances, card: Card) -> Measured:
    """Compare labelled and predicted masks.

    Raises:
        SampleError: an outline is malformed.
        MissingDependency: pycocotools is not installed.
    """
    masks = [mask_of(outline, prediction.height, prediction.width) for outline in truth.outlines]
    labels, places = truth.objects, np.zeros((len(masks), 2), np.int64)
    size = prediction.width, prediction.height
    objects = Instances(labels.boxes, labels.scores, labels.classes, masks, places, *size)
    overlaps = mask_overlaps(prediction, np.arange(len(prediction)), objects, np.arange(len(objects)))
    return measured(truth, prediction, _areas(prediction.crops), overlaps, _areas(masks))


def _areas(masks: Sequence[Array]) -> Array:
    return np.array([np.count_nonzero(mask) for mask in masks], np.float64)


ACCURACY = LabelMetric(
    "mask mAP", "objects", read_outlines, measure, score, options={"score": VARIANT_SCORE_THRESHOLD}
)
