"""Recognizes networks that find text."""

from __future__ import annotations

from edgekit.compiler.card_inference.facts import GraphFacts
from edgekit.compiler.card_inference.image_habits import PADDLE_TEXT_FINDER
from edgekit.compiler.card_inference.recognized import ImageShape, Recognized, Recognizers


def recognize_text_finder(facts: GraphFacts, image: ImageShape) -> Recognized | None:
    """PaddleOCR's DB: one map of one channel as large as the input, a sigmoid at its end."""
    if len(facts.outputs) != 1 or not facts.is_paddle:
        return None
    output = facts.outputs[0]
    if output.shape != (1, 1, image.height, image.width) or "Sigmoid" not in facts.activations(output.name):
        return None
    reason = "one map of the input's size with a sigmoid, exported by Paddle: PaddleOCR's DB"
    return Recognized("detect-text", "db", {"map": output.name}, reason, PADDLE_TEXT_FINDER)


RECOGNIZERS = Recognizers(pictures={250: recognize_text_finder})
