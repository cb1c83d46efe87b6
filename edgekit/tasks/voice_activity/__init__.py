"""Voice activity: whether somebody speaks in a window of a recording."""

from __future__ import annotations

from edgekit.processing.task_spec import TaskSpec

TASK = TaskSpec(
    kind="voice-activity",
    package=__name__,
    decoders={"probability": "decode"},
    predictions={
        "VoiceActivity": "edgekit.processing.predictions.voice_activity",
        "SpeechSegment": "edgekit.processing.predictions.voice_activity",
        "SpeechSegments": "edgekit.processing.predictions.voice_activity",
    },
    metric="metric",
    recognize="recognize",
)
