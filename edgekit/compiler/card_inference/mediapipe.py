"""Recognizes MediaPipe's networks: anchors of BlazeFace's kind, and landmarks of one face, hand or body."""

from __future__ import annotations

import math
from typing import NamedTuple

from edgekit.compiler.card_inference.facts import Facts
from edgekit.compiler.card_inference.image_habits import MEDIAPIPE, MEDIAPIPE_SIGNED
from edgekit.compiler.card_inference.lines import Line
from edgekit.compiler.card_inference.recognized import ImageShape, Recognized
from edgekit.tensor_spec import TensorSpec

SHORT_RANGE = (8, 16, 16, 16)
LAYOUTS = ((SHORT_RANGE, 2), ((16, 32, 32, 32), 2), ((4,), 1), ((8, 16, 32, 32, 32), 2))
"""Strides and anchors of a cell, of the networks that MediaPipe has published: faces near by, of the back
camera, of the full range, and persons. Palms have the first."""


class Subject(NamedTuple):
    """What a network with so many numbers for each box finds."""

    label: str
    signed: bool


SUBJECTS = {16: Subject("face", True), 18: Subject("palm", False), 12: Subject("person", True)}
"""Numbers of a box: 4, and x, y of 6, 7 or 4 keypoints; and whether pixels go in as -1 to 1."""

FACE_MESH, HAND, BODY = 468 * 3, 21 * 3, 39 * 5


def recognize_blazeface(facts: Facts, image: ImageShape) -> Recognized | None:
    """Two outputs with as many rows, one number each for the score, 4 and some keypoints for the box."""
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
    lines = [Line("labels", (label,), f"{columns} numbers a box are those of MediaPipe's {label} detector")]
    if strides != SHORT_RANGE:
        lines.append(Line("strides", strides, f"with {anchors} of each cell they make {rows} anchors"))
    if anchors != 2:
        lines.append(Line("anchors", anchors))
    why = f"{rows} anchors, a score and {columns} numbers for each"
    habits = MEDIAPIPE_SIGNED if signed else MEDIAPIPE
    roles = {"boxes": boxes.name, "scores": scores.name}
    return Recognized("detect", "blazeface", roles, why, habits, lines=lines)


def recognize_landmarks(facts: Facts, image: ImageShape) -> Recognized | None:
    """Coordinates in one row, and how surely there is a face, hand or body."""
    by_size: dict[int, list[TensorSpec]] = {}
    for output in facts.outputs:
        by_size.setdefault(math.prod(output.shape), []).append(output)
    single = by_size.get(1, [])
    if not single:
        return None
    for size, kind, what in ((FACE_MESH, "face", "468"), (HAND, "hand", "21"), (BODY, "pose", "39")):
        if size not in by_size:
            continue
        roles = {"points": by_size[size][0].name, "presence": single[0].name}
        lines = []
        if kind == "hand" and len(single) > 1:
            roles["handedness"] = single[1].name
            lines = [
                Line(
                    "labels", ("right", "left"), "MediaPipe's order, of a picture that is not mirrored", True
                )
            ]
        heatmaps = [o for o in facts.outputs if len(o.shape) == 4 and o.shape[3] == 39]
        if kind == "pose" and heatmaps:
            roles["heatmap"] = heatmaps[0].name
        if kind == "face":
            logits = not facts.activations(single[0].name) & {"Sigmoid"}
            lines = [] if logits else [Line("logits", False, "a sigmoid is in the graph")]
        elif not facts.activations(single[0].name) & {"Sigmoid"}:
            lines = [*lines, Line("logits", True, "no sigmoid at the end of the presence")]
        why = f"{size} numbers are {what} points, beside {len(single)} single ones"
        return Recognized("landmarks", kind, roles, why, MEDIAPIPE, lines=lines)
    return None


def _anchors(image: ImageShape, strides: tuple[int, ...], anchors: int) -> int:
    return sum(anchors * -(-image.height // stride) * -(-image.width // stride) for stride in strides)
