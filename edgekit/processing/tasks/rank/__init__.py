"""Ranking: how well a passage fits a question."""

from __future__ import annotations

from edgekit.processing.tasks.task_spec import TaskSpec

TASK = TaskSpec(
    kind="rank",
    package=__name__,
    decoders={"logit": "decode"},
    predictions={"Relevance": "prediction"},
    recognize="recognize",
)
