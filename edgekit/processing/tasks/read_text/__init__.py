"""Text recognition: what a picture of one line says."""

from __future__ import annotations

from edgekit.processing.tasks.task_spec import TaskSpec

TASK = TaskSpec(
    kind="read-text",
    package=__name__,
    decoders={"ctc": "ctc"},
    predictions={"TextLine": "prediction"},
    metric="metric",
    drawing="drawing",
    mirrored=False,
    recognize="recognize",
)
