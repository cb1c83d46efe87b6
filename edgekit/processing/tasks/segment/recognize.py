"""Recognizes networks that answer with classes of pixels."""

from __future__ import annotations

from edgekit.compiler.card_inference.facts import GraphFacts
from edgekit.compiler.card_inference.image_habits import MAPS, SEGMENTERS
from edgekit.compiler.card_inference.labels import names_in
from edgekit.compiler.card_inference.lines import CardLine
from edgekit.compiler.card_inference.maps import like, the_map
from edgekit.compiler.card_inference.recognized import ImageShape, Recognized, Recognizers

MOST_CLASSES = 256


def recognize_mask(facts: GraphFacts, image: ImageShape) -> Recognized | None:
    """One map of one channel, a sigmoid at its end: foreground and background."""
    found = the_map(facts)
    if found is None or found.channels != 1 or found.integer or not like(found, image):
        return None
    if not facts.activations(found.name) & {"Sigmoid", "HardSigmoid", "Clip"}:
        return None
    why = "one map of the input's proportions with a sigmoid; of hair and other soft edges it may be a matte"
    return Recognized(
        "segment", "binary", {"scores": found.name}, why, MAPS, True,
        [CardLine("labels", ("background", "foreground"), "the two classes of a mask", guessed=True)],
    )  # fmt: skip


def recognize_class_map(facts: GraphFacts, image: ImageShape) -> Recognized | None:
    """One map of integers, or of a score for each class."""
    found = the_map(facts)
    if found is None or not like(found, image) or found.channels > MOST_CLASSES:
        return None
    habits = SEGMENTERS
    if found.channels == 1:
        if not found.integer:
            return None
        return Recognized("segment", "classes", {"classes": found.name}, "a map of integers", habits)
    lines = [CardLine("layout", found.layout)] if found.layout != "NCHW" else []
    named = names_in(facts.metadata)
    if named and len(named[0]) == found.channels:
        lines.append(CardLine("labels", named[0], named[1]))
    why = f"scores of {found.channels} classes for each of {found.height}x{found.width} cells"
    return Recognized("segment", "scores", {"scores": found.name}, why, habits, lines=lines)


RECOGNIZERS = Recognizers(pictures={320: recognize_mask, 330: recognize_class_map})
