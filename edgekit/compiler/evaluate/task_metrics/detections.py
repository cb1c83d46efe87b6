"""Detections: mAP with the float model's detections as ground truth."""

from __future__ import annotations

from edgekit.compiler.evaluate.average_precision import mean_average_precision, mean_change
from edgekit.compiler.evaluate.task_metrics.kept_boxes import LEAST_SCORE, count_kept
from edgekit.compiler.evaluate.task_metrics.task_metric import TaskMetric

REFERENCE_SCORE_THRESHOLD = 0.25
"""Score above which the float model's detections count as ground truth."""
VARIANT_SCORE_THRESHOLD = 0.01
"""Score above which a variant's detections count. It is low, because mAP needs the whole precision curve."""


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
    counted_options={"score": LEAST_SCORE},
)
