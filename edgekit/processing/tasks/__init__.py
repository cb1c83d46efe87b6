"""From a model's raw outputs to the task's prediction: one decoder for each form of output.

To add one: write its options (a frozen dataclass whose fields have defaults; a card sets them, and
``__post_init__`` checks them) and its function in a module of this folder, list them in the module's own
``DECODERS``, and give the name a line below. Cards, their checks and their errors follow from that line.
Only the module of the decoder that a card names is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.processing.tasks.decoder import Decoder

DECODERS: Mapping[str, Mapping[str, str]] = {
    "classify": {"logits": "classify", "probabilities": "classify"},
    "depth": {"inverse": "depth", "metric": "depth", "relative": "depth"},
    "detect": {
        "blazeface": "detect.blazeface",
        "centerface": "detect.centerface",
        "centernet": "detect.centernet",
        "detr": "detect.detr",
        "end2end": "detect.end2end",
        "fastestdet": "detect.fastestdet",
        "nanodet": "detect.nanodet",
        "postprocessed": "detect.end2end",
        "rtdetr": "detect.detr",
        "ssd": "detect.ssd",
        "ssd-anchors": "detect.ssd_anchors",
        "yolov5": "detect.yolov5",
        "yolov8": "detect.yolov8",
        "yolox": "detect.yolox",
    },
    "detect-text": {"db": "ocr.db"},
    "embed": {"cls-pooling": "embed", "mean-pooling": "embed", "vector": "embed"},
    "image-to-image": {"picture": "image_to_image"},
    "landmarks": {"face": "landmarks", "hand": "landmarks", "pose": "landmarks"},
    "matting": {"alpha": "matting"},
    "obb": {"end2end": "obb.yolo", "yolov8": "obb.yolo"},
    "pose": {
        "end2end": "pose.yolo",
        "movenet": "pose.movenet",
        "movenet-multipose": "pose.movenet",
        "yolov8": "pose.yolo",
    },
    "rank": {"logit": "rank"},
    "read-text": {"ctc": "ocr.ctc"},
    "segment": {"binary": "segment", "classes": "segment", "scores": "segment"},
    "segment-instances": {
        "end2end": "segment_instances.yolo",
        "yolov5": "segment_instances.yolo",
        "yolov8": "segment_instances.yolo",
    },
    "voice-activity": {"probability": "voice_activity"},
}
"""Task -> form of its outputs -> the module of this folder that decodes it."""


def find_decoder(kind: str, decode: str) -> Decoder:
    """The decoder of a task.

    Raises:
        KeyError: there is none of this name.
    """
    found: Decoder = import_module(f"{__name__}.{DECODERS[kind][decode]}").DECODERS[decode]
    return found
