"""Recognizes networks that answer with depth."""

from __future__ import annotations

from edgekit.compiler.card_inference.facts import GraphFacts
from edgekit.compiler.card_inference.image_habits import SEGMENTERS
from edgekit.compiler.card_inference.maps import like, the_map
from edgekit.compiler.card_inference.recognized import ImageShape, Recognized, Recognizers


def recognize_depth(facts: GraphFacts, image: ImageShape) -> Recognized | None:
    """One map of one channel without a sigmoid."""
    found = the_map(facts)
    if found is None or found.channels != 1 or found.integer or not like(found, image):
        return None
    why = "one map without a sigmoid: MiDaS and Depth Anything give larger values for what is nearer"
    return Recognized("depth", "inverse", {"depth": found.name}, why, SEGMENTERS, True)


RECOGNIZERS = Recognizers(pictures={340: recognize_depth})
