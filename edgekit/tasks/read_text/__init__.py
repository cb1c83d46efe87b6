"""Text recognition: what an image of one line says."""

from __future__ import annotations

from edgekit.processing.task_spec import TaskSpec

TASK = TaskSpec(
    kind="read-text",
    package=__name__,
    decoders={"ctc": "ctc"},
    metric="metric",
    accuracy="accuracy",
    mirrored=False,
    recognize="recognize",
)
