"""Matting: how much of each pixel is foreground."""

from __future__ import annotations

from edgekit.processing.tasks.task_spec import TaskSpec

TASK = TaskSpec(
    kind="matting",
    package=__name__,
    decoders={"alpha": "decode"},
    predictions={"Matte": "prediction"},
    metric="metric",
    drawing="drawing",
)
