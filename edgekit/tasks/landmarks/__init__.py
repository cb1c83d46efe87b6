"""Landmarks of one face, hand or body."""

from __future__ import annotations

from edgekit.processing.task_spec import TaskSpec

TASK = TaskSpec(
    kind="landmarks",
    package=__name__,
    decoders={"face": "decode", "hand": "decode", "pose": "decode"},
    metric="metric",
    recognize="recognize",
)
