"""Fidelity metrics by kind of task: how close a variant's predictions are to the float model's.

None of them needs labels. A kind without a line here is judged by the SNR of its outputs
(edgekit/compiler/evaluate/fidelity.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from edgekit.compiler.evaluate.task_metrics.classes import TOP1_AGREEMENT
from edgekit.compiler.evaluate.task_metrics.dense import ALPHA_AGREEMENT, MEAN_IOU
from edgekit.compiler.evaluate.task_metrics.detections import SELF_MAP
from edgekit.compiler.evaluate.task_metrics.instances import (
    SELF_MAP_KEYPOINTS,
    SELF_MAP_MASKS,
    SELF_MAP_ORIENTED,
)
from edgekit.compiler.evaluate.task_metrics.task_metric import TaskMetric
from edgekit.compiler.evaluate.task_metrics.text import CHARACTER_ACCURACY, REGION_F1
from edgekit.compiler.evaluate.task_metrics.vectors import LANDMARK_ACCURACY, MEAN_COSINE
from edgekit.compiler.evaluate.task_metrics.voice_activity import DECISION_AGREEMENT

__all__ = ["METRICS", "TaskMetric", "metric_named"]

METRICS: Mapping[str, TaskMetric] = {
    "classify": TOP1_AGREEMENT,
    "detect": SELF_MAP,
    "detect-text": REGION_F1,
    "embed": MEAN_COSINE,
    "landmarks": LANDMARK_ACCURACY,
    "matting": ALPHA_AGREEMENT,
    "obb": SELF_MAP_ORIENTED,
    "pose": SELF_MAP_KEYPOINTS,
    "read-text": CHARACTER_ACCURACY,
    "segment": MEAN_IOU,
    "segment-instances": SELF_MAP_MASKS,
    "voice-activity": DECISION_AGREEMENT,
}
"""Kind of task (``edgekit.processing.tasks.DECODERS``) -> its metric."""


def metric_named(name: str) -> TaskMetric | None:
    """The metric of this name; None for the SNR and for metrics that need labels."""
    return next((metric for metric in METRICS.values() if metric.name == name), None)
