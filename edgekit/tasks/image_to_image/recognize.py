"""Recognizes networks that answer with another image."""

from __future__ import annotations

from edgekit.compiler.card_inference.facts import GraphFacts
from edgekit.compiler.card_inference.image_habits import PICTURES
from edgekit.compiler.card_inference.lines import CardLine
from edgekit.compiler.card_inference.recognized import ImageShape, Recognized, Recognizers, like, the_map


def recognize_picture(facts: GraphFacts, image: ImageShape) -> Recognized | None:
    """Recognize one map with as many channels as the input, and a whole multiple of its size."""
    out = the_map(facts)
    if out is None or out.channels != image.channels or out.integer or not like(out, image):
        return None
    factor = out.height / image.height
    if factor < 1 or factor != int(factor) or (image.channels == 1 and factor == 1):
        return None
    if facts.activations(out.name) & {"Softmax"}:
        return None
    cause = f"a picture, {factor:.0f} times as large" if factor > 1 else "a picture of the input's size"
    lines = [CardLine("layout", out.layout)] if out.layout != "NCHW" else []
    return Recognized("image-to-image", "picture", {"picture": out.name}, cause, PICTURES, factor == 1, lines)


RECOGNIZERS = Recognizers(pictures={310: recognize_picture})
