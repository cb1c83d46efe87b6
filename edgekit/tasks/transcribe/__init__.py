"""Transcription: what is said in a sound, as text."""

from __future__ import annotations

from edgekit.processing.task_spec import TaskSpec

TASK = TaskSpec(
    kind="transcribe",
    package=__name__,
    decoders={"whisper": "whisper"},
    metric="metric",
    accuracy="accuracy",
)
