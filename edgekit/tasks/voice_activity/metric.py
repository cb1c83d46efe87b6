"""Voice activity: the fraction of windows with the same decision, speech or none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.compiler.evaluate.task_metric import TaskMetric
from edgekit.processing.predictions.voice_activity import VoiceActivity


def decision_agreement(reference: Sequence[VoiceActivity], predictions: Sequence[VoiceActivity]) -> float:
    """Compute the fraction (0 to 1) of windows that are speech in both or in neither."""
    return float(np.mean([a.is_speech == b.is_speech for a, b in zip(reference, predictions, strict=True)]))


def decision_margin(prediction: VoiceActivity) -> float:
    """Return the distance of the probability from the threshold."""
    return abs(prediction.probability - prediction.threshold)


METRIC = TaskMetric("decision agreement", decision_agreement, minimum=0.98, margin=decision_margin)
