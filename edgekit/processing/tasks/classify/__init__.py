"""Classification: the best classes of an input."""

from __future__ import annotations

from edgekit.processing.tasks.task_spec import TaskSpec

TASK = TaskSpec(
    kind="classify",
    package=__name__,
    decoders={"logits": "decode", "probabilities": "decode"},
    predictions={"Class": "prediction", "Classes": "prediction"},
    metric="metric",
    drawing="drawing",
    recognize="recognize",
)
