"""Segmentation: the class of each pixel of an image."""

from __future__ import annotations

from edgekit.processing.task_spec import TaskSpec

TASK = TaskSpec(
    kind="segment",
    package=__name__,
    decoders={"binary": "decode", "classes": "decode", "scores": "decode"},
    metric="metric",
    accuracy="accuracy",
    recognize="recognize",
)
