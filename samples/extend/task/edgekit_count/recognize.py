"""Recognizes networks that count by density, as CSRNet (arXiv:1802.10062)."""

from __future__ import annotations

from edgekit.compiler.card_inference.facts import GraphFacts
from edgekit.compiler.card_inference.image_habits import IMAGENET, Habits
from edgekit.compiler.card_inference.recognized import ImageShape, Recognized, Recognizers, like, the_map

CSRNET = Habits("CSRNet", pixels=IMAGENET, size=(768, 1024), certain=False)


def recognize_density(facts: GraphFacts, image: ImageShape) -> Recognized | None:
    """One map of one channel at an eighth of the input's size, which ends in a Relu."""
    found = the_map(facts)
    if found is None or found.channels != 1 or found.integer or not like(found, image):
        return None
    if found.height * 8 != image.height or facts.activations(found.name) != {"Relu"}:
        return None
    why = "one map of an eighth of the input's size without negative values: a density"
    return Recognized("count", "density", {"density": found.name}, why, CSRNET, guessed=True)


RECOGNIZERS = Recognizers(pictures={335: recognize_density})
