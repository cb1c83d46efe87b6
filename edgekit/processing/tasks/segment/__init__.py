"""Segmentation: the class of each pixel of a picture."""

from __future__ import annotations

from edgekit.processing.tasks.task_spec import TaskSpec

TASK = TaskSpec(
    kind="segment",
    package=__name__,
    decoders={"binary": "decode", "classes": "decode", "scores": "decode"},
    predictions={"ClassMap": "prediction"},
    metric="metric",
    drawing="drawing",
    recognize="recognize",
)
