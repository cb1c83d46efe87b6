"""Instance segmentation: things in a picture with their masks."""

from __future__ import annotations

from edgekit.processing.tasks.task_spec import TaskSpec

TASK = TaskSpec(
    kind="segment-instances",
    package=__name__,
    decoders={"end2end": "yolo", "yolov5": "yolo", "yolov8": "yolo"},
    predictions={"Instance": "prediction", "Instances": "prediction"},
    metric="metric",
    drawing="drawing",
)
