"""Recognizes MoveNet. YOLO's poses are recognized with its other heads."""

from __future__ import annotations

from edgekit.compiler.card_inference.facts import GraphFacts
from edgekit.compiler.card_inference.image_habits import MOVENET
from edgekit.compiler.card_inference.recognized import ImageShape, Recognized, Recognizers

COCO_POINTS = 17


def recognize_movenet(facts: GraphFacts, image: ImageShape) -> Recognized | None:
    """Recognize one output [1, 1, 17, 3], or [1, 6, 56] for several persons."""
    if len(facts.outputs) != 1:
        return None
    output = facts.outputs[0]
    if output.shape == (1, 1, COCO_POINTS, 3):
        return Recognized(
            "pose", "movenet", {"keypoints": output.name}, "17 points of y, x and score: one person", MOVENET
        )
    if output.shape == (1, 6, 56):
        reason = "6 persons of 17 points, a box and a score"
        return Recognized("pose", "movenet-multipose", {"predictions": output.name}, reason, MOVENET)
    return None


RECOGNIZERS = Recognizers(pictures={190: recognize_movenet})
