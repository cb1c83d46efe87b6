"""The recognizers, in their order: the first that knows a model's outputs names its task."""

from __future__ import annotations

from edgekit.compiler.card_inference.classify import recognize_classifier, recognize_embedding
from edgekit.compiler.card_inference.detect import (
    recognize_centerface,
    recognize_centernet,
    recognize_detr,
    recognize_fastestdet,
    recognize_nanodet,
    recognize_postprocessed,
    recognize_rtdetr,
    recognize_ssd,
    recognize_ssd_anchors,
    recognize_yolox,
)
from edgekit.compiler.card_inference.facts import Facts
from edgekit.compiler.card_inference.maps import (
    recognize_class_map,
    recognize_depth,
    recognize_mask,
    recognize_picture,
)
from edgekit.compiler.card_inference.mediapipe import recognize_blazeface, recognize_landmarks
from edgekit.compiler.card_inference.ocr import recognize_line_reader, recognize_text_finder
from edgekit.compiler.card_inference.recognized import ImageShape, Recognized, Recognizer
from edgekit.compiler.card_inference.yolo import recognize_movenet, recognize_yolo
from edgekit.processing.tasks import has_decoder

RECOGNIZERS: tuple[Recognizer, ...] = (
    # The most particular forms first.
    recognize_yolox,
    recognize_nanodet,
    recognize_yolo,
    recognize_rtdetr,
    recognize_centerface,
    recognize_centernet,
    recognize_blazeface,
    recognize_landmarks,
    recognize_movenet,
    recognize_ssd,
    recognize_detr,
    recognize_ssd_anchors,
    recognize_postprocessed,
    recognize_text_finder,
    recognize_fastestdet,
    recognize_picture,
    recognize_mask,
    recognize_class_map,
    recognize_depth,
    recognize_line_reader,
    recognize_embedding,
    recognize_classifier,
)


def recognize(facts: Facts, image: ImageShape) -> Recognized | None:
    """The task of a model that one picture goes into; None where no decoder reads its outputs."""
    for recognizer in RECOGNIZERS:
        found = recognizer(facts, image)
        if found is not None and has_decoder(found.kind, found.decode):
            return found
    return None
