"""The recognizers, in their order: the first that knows a model's outputs names its task."""

from __future__ import annotations

from edgekit.cards.tasks import DECODERS
from edgekit.drafting.classify import recognize_classifier
from edgekit.drafting.detect import recognize_centerface, recognize_ssd, recognize_yolox
from edgekit.drafting.facts import Facts
from edgekit.drafting.ocr import recognize_line_reader, recognize_text_finder
from edgekit.drafting.recognized import ImageShape, Recognized, Recognizer
from edgekit.drafting.yolo import recognize_yolo

RECOGNIZERS: tuple[Recognizer, ...] = (
    recognize_yolox,  # the most particular forms first
    recognize_yolo,
    recognize_centerface,
    recognize_text_finder,
    recognize_line_reader,
    recognize_ssd,
    recognize_classifier,
)


def recognize(facts: Facts, image: ImageShape) -> Recognized | None:
    """The task of a model that one picture goes into; None where no decoder reads its outputs."""
    for recognizer in RECOGNIZERS:
        found = recognizer(facts, image)
        if found is not None and found.decode in DECODERS.get(found.kind, {}):
            return found
    return None
