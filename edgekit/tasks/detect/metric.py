"""Detections: mAP with the float model's detections as ground truth."""

from __future__ import annotations

from functools import partial

from edgekit.compiler.evaluate.average_precision import (
    Similarity,
    mean_average_precision,
    mean_change,
    resample_average_precision,
)
from edgekit.compiler.evaluate.kept_boxes import LEAST_SCORE, count_kept
from edgekit.compiler.evaluate.task_metric import TaskMetric

REFERENCE_SCORE_THRESHOLD = 0.25
"""Score above which the float model's detections count as ground truth."""
VARIANT_SCORE_THRESHOLD = 0.01
"""Score above which a variant's detections count. It is low, because mAP needs the whole precision curve."""
HALVING_GAIN = 0.01
"""In few images many classes have no object, and wrong boxes of these do not count. int8 forms of YOLOX-nano
and SSD-MobileNet-v2 on 64, 128 and 256 photographs: .905 .897 .887, .944 .936 .927, .911 .902 .892."""


METRIC = TaskMetric(
    "self-mAP",
    mean_average_precision,
    minimum=0.95,
    objects=80,
    resample=resample_average_precision,
    halving_gain=HALVING_GAIN,
    reference_score=REFERENCE_SCORE_THRESHOLD,
    variant_options={"score": VARIANT_SCORE_THRESHOLD},
    count_kept=count_kept,
    change=mean_change,
    counted_options={"score": LEAST_SCORE},
)


def self_map(name: str, similarity: Similarity) -> TaskMetric:
    """Return a self-mAP by another similarity than that of boxes, with the same limits."""
    return TaskMetric(
        name,
        partial(mean_average_precision, similarity=similarity),
        minimum=METRIC.minimum,
        objects=METRIC.objects,
        resample=partial(resample_average_precision, similarity=similarity),
        halving_gain=HALVING_GAIN,
        reference_score=METRIC.reference_score,
        variant_options=METRIC.variant_options,
        change=partial(mean_change, similarity=similarity),
    )
