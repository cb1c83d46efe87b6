"""Text to text: a translation, a summary or another text, written by an encoder-decoder."""

from __future__ import annotations

from edgekit.processing.task_spec import TaskSpec

TASK = TaskSpec(
    kind="text2text",
    package=__name__,
    decoders={"tokens": "tokens"},
    metric="edgekit.tasks.transcribe.metric",
)
