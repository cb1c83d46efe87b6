"""Recognizes networks that answer with another picture."""

from __future__ import annotations

from edgekit.compiler.card_inference.facts import GraphFacts
from edgekit.compiler.card_inference.image_habits import PICTURES
from edgekit.compiler.card_inference.lines import CardLine
from edgekit.compiler.card_inference.maps import like, the_map
from edgekit.compiler.card_inference.recognized import ImageShape, Recognized, Recognizers


def recognize_picture(facts: GraphFacts, image: ImageShape) -> Recognized | None:
    """One map with as many channels as the input, of a whole multiple of its size."""
    found = the_map(facts)
    if found is None or found.channels != image.channels or found.integer or not like(found, image):
        return None
    factor = found.height / image.height
    if factor < 1 or factor != int(factor) or (image.channels == 1 and factor == 1):
        return None
    if facts.activations(found.name) & {"Softmax"}:
        return None
    why = f"a picture, {factor:.0f} times as large" if factor > 1 else "a picture of the input's size"
    lines = [CardLine("layout", found.layout)] if found.layout != "NCHW" else []
    return Recognized("image-to-image", "picture", {"picture": found.name}, why, PICTURES, factor == 1, lines)


RECOGNIZERS = Recognizers(pictures={310: recognize_picture})
