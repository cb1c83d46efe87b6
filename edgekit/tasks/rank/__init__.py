"""Ranking: how well a passage fits a question."""

from __future__ import annotations

from edgekit.processing.task_spec import TaskSpec

TASK = TaskSpec(
    kind="rank",
    package=__name__,
    decoders={"logit": "decode"},
    predictions={"Relevance": "edgekit.processing.predictions.rank"},
    recognize="recognize",
)
