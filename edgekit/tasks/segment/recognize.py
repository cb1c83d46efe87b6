"""Recognizes networks that answer with classes of pixels."""

from __future__ import annotations

from edgekit.compiler.card_inference.facts import GraphFacts
from edgekit.compiler.card_inference.image_habits import MAPS, SEGMENTERS
from edgekit.compiler.card_inference.labels import names_in
from edgekit.compiler.card_inference.lines import CardLine
from edgekit.compiler.card_inference.recognized import ImageShape, Recognized, Recognizers, like, the_map

MOST_CLASSES = 256


def recognize_mask(facts: GraphFacts, image: ImageShape) -> Recognized | None:
    """Recognize one map of one channel with a sigmoid at its end: foreground and background."""
    mask = the_map(facts)
    if mask is None or mask.channels != 1 or mask.integer or not like(mask, image):
        return None
    if not facts.activations(mask.name) & {"Sigmoid", "HardSigmoid", "Clip"}:
        return None
    note = "one map of the input's proportions with a sigmoid; of hair and other soft edges it may be a matte"
    return Recognized(
        "segment", "binary", {"scores": mask.name}, note, MAPS, True,
        [CardLine("labels", ("background", "foreground"), "the two classes of a mask", guessed=True)],
    )  # fmt: skip


def recognize_class_map(facts: GraphFacts, image: ImageShape) -> Recognized | None:
    """Recognize one map of integers, or of a score for each class."""
    class_map = the_map(facts)
    if class_map is None or not like(class_map, image) or class_map.channels > MOST_CLASSES:
        return None
    habits = SEGMENTERS
    if class_map.channels == 1:
        if not class_map.integer:
            return None
        return Recognized("segment", "classes", {"classes": class_map.name}, "a map of integers", habits)
    lines = [CardLine("layout", class_map.layout)] if class_map.layout != "NCHW" else []
    named = names_in(facts.metadata)
    if named and len(named[0]) == class_map.channels:
        lines.append(CardLine("labels", named[0], named[1]))
    reason = f"scores of {class_map.channels} classes for each of {class_map.height}x{class_map.width} cells"
    return Recognized("segment", "scores", {"scores": class_map.name}, reason, habits, lines=lines)


RECOGNIZERS = Recognizers(pictures={320: recognize_mask, 330: recognize_class_map})
