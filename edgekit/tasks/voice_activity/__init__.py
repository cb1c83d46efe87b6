"""Voice activity: whether somebody speaks in a window of a recording."""

from __future__ import annotations

from edgekit.processing.task_spec import TaskSpec

TASK = TaskSpec(
    kind="voice-activity",
    package=__name__,
    decoders={"probability": "decode"},
    metric="metric",
    recognize="recognize",
)
