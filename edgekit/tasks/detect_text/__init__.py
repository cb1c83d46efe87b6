"""Text detection: where text is in an image."""

from __future__ import annotations

from edgekit.processing.task_spec import TaskSpec

TASK = TaskSpec(
    kind="detect-text",
    package=__name__,
    decoders={"db": "db"},
    metric="metric",
    mirrored=False,
    recognize="recognize",
)
