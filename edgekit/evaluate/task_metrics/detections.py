"""Detections: mAP with the float model's detections as ground truth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.cards.nms import overlaps
from edgekit.cards.predictions import Detections
from edgekit.evaluate.average_precision import mean_average_precision, mean_change
from edgekit.evaluate.task_metrics.task_metric import TaskMetric

REFERENCE_SCORE_THRESHOLD = 0.25
"""Score above which the float model's detections count as ground truth."""
VARIANT_SCORE_THRESHOLD = 0.01
"""Score above which a variant's detections count. It is low, because mAP needs the whole precision curve."""

KEPT_REFERENCE_SCORE, KEPT_SCORE, KEPT_IOU = 0.3, 0.2, 0.5
"""A box of the float model above the first score (the default of ``DetectOptions``) is kept if the variant
has one of its class above the second that overlaps it by as much."""


def count_kept(reference: Sequence[Detections], found: Sequence[Detections]) -> tuple[int, int]:
    """How many of the float model's sure boxes a variant keeps, and of how many.

    mAP depends on the order of the scores only: an int8 YOLOv8n (nudenet's 320n.onnx) on OpenVINO with a
    self-mAP of .866 had lowered the scores, and 12 of 35 boxes were below the threshold of an app.
    """
    kept = total = 0
    for sure, own in zip(reference, found, strict=True):
        sure_boxes, own_boxes = sure.scores > KEPT_REFERENCE_SCORE, own.scores > KEPT_SCORE
        total += int(np.count_nonzero(sure_boxes))
        if sure_boxes.any() and own_boxes.any():
            same = sure.classes[sure_boxes][:, None] == own.classes[own_boxes][None]
            covered = overlaps(sure.boxes[sure_boxes], own.boxes[own_boxes], KEPT_IOU)
            kept += int(np.count_nonzero((same & covered).any(axis=1)))
    return kept, total


SELF_MAP = TaskMetric(
    "self-mAP",
    mean_average_precision,
    # A detector with self-mAP .8 lost about .015 of .34 mAP (YOLOX-nano); a collapse, e.g. from one scale for
    # channels of different ranges, is far below that.
    drop=0.25,
    reference_options={"score": REFERENCE_SCORE_THRESHOLD},
    variant_options={"score": VARIANT_SCORE_THRESHOLD},
    count_kept=count_kept,
    change=mean_change,
)
