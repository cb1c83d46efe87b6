"""Embedding: a vector that stands for the input."""

from __future__ import annotations

from edgekit.processing.task_spec import TaskSpec

TASK = TaskSpec(
    kind="embed",
    package=__name__,
    decoders={"cls-pooling": "decode", "mean-pooling": "decode", "vector": "decode"},
    metric="metric",
    accuracy="accuracy",
    recognize="recognize",
)
