"""Matting: how much of each pixel is foreground."""

from __future__ import annotations

from edgekit.processing.task_spec import TaskSpec

TASK = TaskSpec(
    kind="matting",
    package=__name__,
    decoders={"alpha": "decode"},
    metric="metric",
    accuracy="accuracy",
)
