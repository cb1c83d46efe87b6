"""Names of classes: those in a model's metadata, and COCO's, which most detectors were trained on."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from edgekit.compiler.card_inference.hugging_face_files import LABELS_KEY
from edgekit.compiler.card_inference.lines import CardLine
from edgekit.compiler.card_inference.tflite_metadata import output_labels

COCO_80 = (
    "person, bicycle, car, motorcycle, airplane, bus, train, truck, boat, traffic light, fire hydrant, "
    "stop sign, parking meter, bench, bird, cat, dog, horse, sheep, cow, elephant, bear, zebra, giraffe, "
    "backpack, umbrella, handbag, tie, suitcase, frisbee, skis, snowboard, sports ball, kite, baseball "
    "bat, baseball glove, skateboard, surfboard, tennis racket, bottle, wine glass, cup, fork, knife, "
    "spoon, bowl, banana, apple, sandwich, orange, broccoli, carrot, hot dog, pizza, donut, cake, chair, "
    "couch, potted plant, bed, dining table, toilet, tv, laptop, mouse, remote, keyboard, cell phone, "
    "microwave, oven, toaster, sink, refrigerator, book, clock, vase, scissors, teddy bear, hair drier, "
    "toothbrush"
)
COCO_UNUSED = (0, 12, 26, 29, 30, 45, 66, 68, 69, 71, 83)
"""Ids from 0 to 90 that COCO's annotations leave out; 0 is background."""


def coco_80() -> tuple[str, ...]:
    """Return COCO's 80 classes in the order of detectors' columns.

    >>> len(coco_80()), coco_80()[0], coco_80()[9], coco_80()[79]
    (80, 'person', 'traffic light', 'toothbrush')
    """
    return tuple(COCO_80.split(", "))


def coco_91() -> tuple[str, ...]:
    """Return COCO's classes by COCO's own ids, 0 to 90; "" for unused ids.

    >>> len(coco_91()), coco_91()[1], coco_91()[90]
    (91, 'person', 'toothbrush')
    """
    names = iter(coco_80())
    return tuple("" if index in COCO_UNUSED else next(names) for index in range(91))


def names_in(metadata: Mapping[str, str], output: str = "") -> tuple[tuple[str, ...], str] | None:
    """Return the class names in a model's metadata and their source, or None if it has none.

    ``output`` is the one whose classes they are: TFLite names them by output.

    Ultralytics writes a dict, ``{0: 'person', 1: 'car'}``; PaddleX and RapidAI one a line in ``character``.
    """
    for key in (LABELS_KEY, "names", "labels", "classes", "class_names"):
        names = _parsed(metadata.get(key, ""))
        if names:
            return names, key if key == LABELS_KEY else f"the model's metadata, {key!r}"
    if text := metadata.get("character"):
        return tuple(text.split("\n")), "the model's metadata, 'character'"
    if output and (labels := output_labels(metadata, output)):
        return labels, "the model's metadata, 'tflite.metadata'"
    return None


def _parsed(text: str) -> tuple[str, ...]:
    try:
        value = ast.literal_eval(text) if text.lstrip()[:1] in ("{", "[", "(") else text
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ()
    if isinstance(value, dict):
        value = {
            int(k) if isinstance(k, str) and k.isdecimal() and len(k) < 6 else k: v for k, v in value.items()
        }
    if isinstance(value, dict) and value and all(isinstance(k, int) and 0 <= k < 1 << 16 for k in value):
        return tuple(str(value.get(index, "")) for index in range(max(value) + 1))
    if isinstance(value, list | tuple):
        return tuple(map(str, value))
    return tuple(value.split("\n")) if isinstance(value, str) and "\n" in value else ()


def label_line(
    metadata: Mapping[str, str], classes: int, *, output: str = "", columns_from: int = 0
) -> CardLine | None:
    """Return the card's line of labels, if they are known or COCO's fit.

    Args:
        classes: Number of columns of scores.
        columns_from: Number of the class in the first column.
    """
    named = names_in(metadata, output)
    if named is not None and len(named[0]) == classes:
        return CardLine("labels", named[0], named[1])
    if classes == 80:
        return CardLine("labels", coco_80(), "80 classes: COCO's", guessed=True)
    if classes + columns_from == 91:
        return CardLine("labels", coco_91(), "COCO's ids; 0 is background", guessed=True)
    return None
