"""Text detection: where text is in a picture."""

from __future__ import annotations

from edgekit.processing.tasks.task_spec import TaskSpec

TASK = TaskSpec(
    kind="detect-text",
    package=__name__,
    decoders={"db": "db"},
    predictions={"TextRegion": "prediction", "TextRegions": "prediction"},
    metric="metric",
    drawing="drawing",
    mirrored=False,
    recognize="recognize",
)
