"""The predictions of EdgeKit's own tasks, e.g. ``from edgekit.processing.predictions import Keypoints``.

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

MODULES = {
    "Cascaded": "cascaded",
    "Class": "classify",
    "ClassMap": "segment",
    "Classes": "classify",
    "DepthMap": "depth",
    "Detection": "detect",
    "Detections": "detect",
    "Embedding": "embed",
    "ImagePlacement": "image_placement",
    "Instance": "segment_instances",
    "Instances": "segment_instances",
    "KeypointInstance": "pose",
    "Keypoints": "pose",
    "Matte": "matting",
    "OrientedDetection": "obb",
    "OrientedDetections": "obb",
    "Picture": "image_to_image",
    "Prediction": "prediction",
    "Relevance": "rank",
    "SpeechSegment": "voice_activity",
    "SpeechSegments": "voice_activity",
    "TextLine": "read_text",
    "TextPrediction": "texts",
    "TextPredictions": "texts",
    "TextRegion": "detect_text",
    "TextRegions": "detect_text",
    "Transcript": "transcribe",
    "VoiceActivity": "voice_activity",
    "WindowPrediction": "windows",
    "WindowPredictions": "windows",
    "WrittenText": "text2text",
    "label_of": "label",
}
"""Name -> module of this folder."""


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{MODULES[name]}"), name)
