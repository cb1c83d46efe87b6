"""Poses: persons in an image with their keypoints."""

from __future__ import annotations

from edgekit.processing.task_spec import TaskSpec

TASK = TaskSpec(
    kind="pose",
    package=__name__,
    decoders={"end2end": "yolo", "movenet": "movenet", "movenet-multipose": "movenet", "yolov8": "yolo"},
    metric="metric",
    accuracy="accuracy",
    recognize="recognize",
)
