"""Oriented detection: things in an image with boxes that are turned."""

from __future__ import annotations

from edgekit.processing.task_spec import TaskSpec

TASK = TaskSpec(
    kind="obb",
    package=__name__,
    decoders={"end2end": "yolo", "yolov8": "yolo"},
    metric="metric",
    accuracy="accuracy",
)
