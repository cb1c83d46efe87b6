"""Recognizes networks that read a line of text."""

from __future__ import annotations

from edgekit.compiler.card_inference.facts import GraphFacts
from edgekit.compiler.card_inference.image_habits import LINE_READER, PADDLE_LINE_READER
from edgekit.compiler.card_inference.labels import names_in
from edgekit.compiler.card_inference.lines import CardLine
from edgekit.compiler.card_inference.recognized import ImageShape, Recognized, Recognizers

LEAST_STRIDE, MOST_STRIDE = 2, 16
"""Pixels of the input's width for each step of a line reader."""


def recognize_line_reader(facts: GraphFacts, image: ImageShape) -> Recognized | None:
    """CTC: scores of many classes at each of many steps along a flat image, one of them a blank."""
    if len(facts.outputs) != 1 or len(facts.outputs[0].shape) != 3 or image.width < 2 * image.height:
        return None
    output = facts.outputs[0]
    if 1 not in output.shape[:2] or output.shape[2] < 11:
        return None
    steps, classes = max(output.shape[:2]), output.shape[2]
    if not LEAST_STRIDE <= image.width / steps <= MOST_STRIDE:
        return None
    lines = (
        []
        if "Softmax" in facts.activations(output.name)
        else [CardLine("logits", True, "no softmax at the end")]
    )
    named = names_in(facts.metadata)
    missing = classes - len(named[0]) if named else 0
    if named and missing in (1, 2):
        if missing == 2:
            lines.append(
                CardLine("space", True, "one class more than the metadata's characters and the blank")
            )
        lines.append(CardLine("labels", named[0], named[1]))
    reason = f"{steps} steps of {classes} classes along a line of text"
    habits = PADDLE_LINE_READER if facts.is_paddle else LINE_READER
    return Recognized("read-text", "ctc", {"scores": output.name}, reason, habits, not facts.is_paddle, lines)


RECOGNIZERS = Recognizers(pictures={350: recognize_line_reader})
