"""Voice activity: whether somebody speaks in a window of a sound."""

from __future__ import annotations

from edgekit.processing.tasks.task_spec import TaskSpec

TASK = TaskSpec(
    kind="voice-activity",
    package=__name__,
    decoders={"probability": "decode"},
    predictions={
        "VoiceActivity": "prediction",
        "SpeechSegment": "prediction",
        "SpeechSegments": "prediction",
    },
    metric="metric",
    recognize="recognize",
)
