"""Depth: how far each pixel of an image is."""

from __future__ import annotations

from edgekit.processing.task_spec import TaskSpec

TASK = TaskSpec(
    kind="depth",
    package=__name__,
    decoders={"inverse": "decode", "metric": "decode", "relative": "decode"},
    accuracy="accuracy",
    recognize="recognize",
)
