"""Classification: the best classes of an input."""

from __future__ import annotations

from edgekit.processing.task_spec import TaskSpec

TASK = TaskSpec(
    kind="classify",
    package=__name__,
    decoders={"logits": "decode", "probabilities": "decode"},
    metric="metric",
    accuracy="accuracy",
    recognize="recognize",
)
