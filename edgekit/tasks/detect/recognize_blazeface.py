"""Recognizes MediaPipe's detectors: anchors of BlazeFace's kind."""

from __future__ import annotations

from typing import NamedTuple

from edgekit.compiler.card_inference.facts import GraphFacts
from edgekit.compiler.card_inference.image_habits import MEDIAPIPE, MEDIAPIPE_SIGNED
from edgekit.compiler.card_inference.lines import CardLine
from edgekit.compiler.card_inference.recognized import ImageShape, Recognized

SHORT_RANGE = (8, 16, 16, 16)
LAYOUTS = ((SHORT_RANGE, 2), ((16, 32, 32, 32), 2), ((4,), 1), ((8, 16, 32, 32, 32), 2))
"""Strides and anchors per cell of the networks that MediaPipe has published: faces at short range, of the
back camera, at full range, and persons. Palms use the first."""


class Subject(NamedTuple):
    """Object class of a network, and whether its pixels are -1 to 1."""

    label: str
    signed: bool


SUBJECTS = {16: Subject("face", True), 18: Subject("palm", False), 12: Subject("person", True)}
"""Numbers per box (4, and x, y of 6, 7 or 4 keypoints) -> the object class and its pixel range."""


def recognize_blazeface(facts: GraphFacts, image: ImageShape) -> Recognized | None:
    """Recognize two outputs with as many rows: one score each, and a box of 4 numbers and keypoints each."""
    if len(facts.outputs) != 2 or any(len(o.shape) != 3 for o in facts.outputs):
        return None
    scores, boxes = sorted(facts.outputs, key=lambda o: o.shape[2])
    rows, columns = boxes.shape[1:]
    if scores.shape[1:] != (rows, 1) or columns not in SUBJECTS:
        return None
    fitting = [entry for entry in LAYOUTS if _anchors(image, *entry) == rows]
    if not fitting:
        return None
    (strides, anchors), (label, signed) = fitting[0], SUBJECTS[columns]
    lines = [
        CardLine("labels", (label,), f"{columns} numbers a box are those of MediaPipe's {label} detector")
    ]
    if strides != SHORT_RANGE:
        lines.append(CardLine("strides", strides, f"with {anchors} of each cell they make {rows} anchors"))
    if anchors != 2:
        lines.append(CardLine("anchors", anchors))
    reason = f"{rows} anchors, a score and {columns} numbers for each"
    habits = MEDIAPIPE_SIGNED if signed else MEDIAPIPE
    roles = {"boxes": boxes.name, "scores": scores.name}
    return Recognized("detect", "blazeface", roles, reason, habits, lines=lines)


def _anchors(image: ImageShape, strides: tuple[int, ...], anchors: int) -> int:
    return sum(anchors * -(-image.height // stride) * -(-image.width // stride) for stride in strides)
