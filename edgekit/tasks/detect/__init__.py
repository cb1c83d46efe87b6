"""Detection: things in an image with their boxes."""

from __future__ import annotations

from edgekit.processing.task_spec import TaskSpec

TASK = TaskSpec(
    kind="detect",
    package=__name__,
    decoders={
        "blazeface": "blazeface",
        "centerface": "centerface",
        "centernet": "centernet",
        "detr": "detr",
        "end2end": "end2end",
        "fastestdet": "fastestdet",
        "nanodet": "nanodet",
        "postprocessed": "end2end",
        "rtdetr": "detr",
        "ssd": "ssd",
        "ssd-anchors": "ssd_anchors",
        "yolov5": "yolov5",
        "yolov8": "yolov8",
        "yolox": "yolox",
    },
    metric="metric",
    accuracy="accuracy",
    recognize="recognize",
)
