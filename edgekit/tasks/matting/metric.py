"""Mattes: the mean difference of alpha."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.compiler.evaluate.task_metric import TaskMetric
from edgekit.processing.predictions.matting import Matte


def alpha_agreement(reference: Sequence[Matte], predictions: Sequence[Matte]) -> float:
    """1 - mean absolute difference (MAD) of alpha."""
    pairs = zip(reference, predictions, strict=True)
    return 1 - float(np.mean([np.abs(a.alpha - b.alpha).mean() for a, b in pairs]))


METRIC = TaskMetric("alpha kept", alpha_agreement, minimum=0.98)
