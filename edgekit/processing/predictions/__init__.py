"""The predictions of all tasks, by name, e.g. ``from edgekit.processing.predictions import Keypoints``.

Each is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.processing.predictions.classify import Class as Class
    from edgekit.processing.predictions.classify import Classes as Classes
    from edgekit.processing.predictions.detect import Detection as Detection
    from edgekit.processing.predictions.detect import Detections as Detections
    from edgekit.processing.predictions.image_placement import ImagePlacement as ImagePlacement
    from edgekit.processing.predictions.label import label_of as label_of
    from edgekit.processing.predictions.prediction import Prediction as Prediction

SHARED = {
    "Cascaded": "cascaded",
    "ImagePlacement": "image_placement",
    "Prediction": "prediction",
    "TextPrediction": "texts",
    "TextPredictions": "texts",
    "WindowPrediction": "windows",
    "WindowPredictions": "windows",
    "label_of": "label",
}
"""Name -> module of this folder."""


def __getattr__(name: str) -> Any:
    if name in SHARED:
        return getattr(import_module(f"{__name__}.{SHARED[name]}"), name)
    if not name.startswith("_"):
        from edgekit.processing.task_table import all_tasks

        for task in all_tasks():
            if name in task.predictions:
                return getattr(task.load(task.predictions[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
