"""Recognizes networks that answer with depth."""

from __future__ import annotations

from edgekit.compiler.card_inference.facts import GraphFacts
from edgekit.compiler.card_inference.image_habits import SEGMENTERS
from edgekit.compiler.card_inference.recognized import ImageShape, Recognized, Recognizers, like, the_map


def recognize_depth(facts: GraphFacts, image: ImageShape) -> Recognized | None:
    """Recognize one map of one channel without a sigmoid."""
    depth = the_map(facts)
    if depth is None or depth.channels != 1 or depth.integer or not like(depth, image):
        return None
    reason = "one map without a sigmoid: MiDaS and Depth Anything give larger values for what is nearer"
    return Recognized("depth", "inverse", {"depth": depth.name}, reason, SEGMENTERS, True)


RECOGNIZERS = Recognizers(pictures={340: recognize_depth})
