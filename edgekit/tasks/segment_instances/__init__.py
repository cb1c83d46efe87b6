"""Instance segmentation: things in an image with their masks."""

from __future__ import annotations

from edgekit.processing.task_spec import TaskSpec

TASK = TaskSpec(
    kind="segment-instances",
    package=__name__,
    decoders={"end2end": "yolo", "yolov5": "yolo", "yolov8": "yolo"},
    metric="metric",
    accuracy="accuracy",
)
