"""Recognizes MediaPipe's landmarks of one face, hand or body."""

from __future__ import annotations

import math

from edgekit.compiler.card_inference.facts import GraphFacts
from edgekit.compiler.card_inference.image_habits import MEDIAPIPE
from edgekit.compiler.card_inference.lines import CardLine
from edgekit.compiler.card_inference.recognized import ImageShape, Recognized, Recognizers
from edgekit.tensor_spec import TensorSpec

FACE_MESH, HAND, BODY = 468 * 3, 21 * 3, 39 * 5


def recognize_landmarks(facts: GraphFacts, image: ImageShape) -> Recognized | None:
    """Recognize coordinates in one row, and the presence score of a face, hand or body."""
    by_size: dict[int, list[TensorSpec]] = {}
    for output in facts.outputs:
        by_size.setdefault(math.prod(output.shape), []).append(output)
    single = by_size.get(1, [])
    if not single:
        return None
    for size, kind, point_count in ((FACE_MESH, "face", "468"), (HAND, "hand", "21"), (BODY, "pose", "39")):
        if size not in by_size:
            continue
        roles = {"points": by_size[size][0].name, "presence": single[0].name}
        lines = []
        if kind == "hand" and len(single) > 1:
            roles["handedness"] = single[1].name
            lines = [
                CardLine(
                    "labels", ("right", "left"), "MediaPipe's order, of a picture that is not mirrored", True
                )
            ]
        heatmaps = [o for o in facts.outputs if len(o.shape) == 4 and o.shape[3] == 39]
        if kind == "pose" and heatmaps:
            roles["heatmap"] = heatmaps[0].name
        if kind == "face":
            logits = not facts.activations(single[0].name) & {"Sigmoid"}
            lines = [] if logits else [CardLine("logits", False, "a sigmoid is in the graph")]
        elif not facts.activations(single[0].name) & {"Sigmoid"}:
            lines = [*lines, CardLine("logits", True, "no sigmoid at the end of the presence")]
        reason = f"{size} numbers are {point_count} points, beside {len(single)} single ones"
        return Recognized("landmarks", kind, roles, reason, MEDIAPIPE, lines=lines)
    return None


RECOGNIZERS = Recognizers(pictures={180: recognize_landmarks})
