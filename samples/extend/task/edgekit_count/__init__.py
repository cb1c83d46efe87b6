"""Counting: how many people are in a picture, by a map of density."""

from __future__ import annotations

from edgekit.processing.task_spec import TaskSpec

TASK = TaskSpec(
    kind="count",
    package=__name__,
    decoders={"density": "decode"},
    metric="metric",
    recognize="recognize",
)
