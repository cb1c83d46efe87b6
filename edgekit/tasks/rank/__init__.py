"""Ranking: how well a passage fits a question."""

from __future__ import annotations

from edgekit.processing.task_spec import TaskSpec

TASK = TaskSpec(
    kind="rank",
    package=__name__,
    decoders={"logit": "decode"},
    recognize="recognize",
)
