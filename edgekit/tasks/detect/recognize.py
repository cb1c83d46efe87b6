"""Recognizes detectors by the number and the form of their outputs."""

from __future__ import annotations

from typing import NamedTuple

from edgekit.compiler.card_inference.facts import GraphFacts
from edgekit.compiler.card_inference.image_habits import (
    CENTERFACE,
    CENTERNET,
    DETR,
    FASTESTDET,
    MEDIAPIPE,
    MEDIAPIPE_SIGNED,
    NANODET,
    RTDETR,
    TENSORFLOW_SSD,
    YOLOX,
)
from edgekit.compiler.card_inference.labels import label_line
from edgekit.compiler.card_inference.lines import CardLine
from edgekit.compiler.card_inference.recognized import ImageShape, Recognized, Recognizers, cells
from edgekit.tasks.detect.recognize_yolo import recognize_yolo

ARITHMETIC = {"Add", "Sub", "Mul", "Div", "Exp", "Clip", "Min", "Max"}
"""What decodes boxes in the graph; without them a Conv or Gemm gives numbers relative to anchors."""
MOST_QUERIES = 1000
"""DETR's heirs have 100 to 900; priors are more."""
STRIDES = ((8, 16, 32), (8, 16, 32, 64))
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


def recognize_yolox(facts: GraphFacts, image: ImageShape) -> Recognized | None:
    """Recognize one output [1, cells, 5 + classes] with undecoded boxes. A Conv computes the boxes, a Sigmoid
    the rest."""
    if len(facts.outputs) != 1 or len(facts.outputs[0].shape) != 3:
        return None
    output = facts.outputs[0]
    rows, columns = output.shape[1:]
    strides = next((s for s in STRIDES if rows == cells(image, s)), None)
    if strides is None or columns < 6 or not {"Conv", "Sigmoid"} <= facts.activations(output.name):
        return None
    reason = f"{rows} rows are the cells of strides {list(strides)}, 5 + {columns - 5} columns, boxes raw"
    lines = [line for line in (label_line(facts.metadata, columns - 5),) if line]
    if strides != STRIDES[0]:
        lines.append(CardLine("strides", strides, "the output has as many rows as these grids have cells"))
    return Recognized("detect", "yolox", {"predictions": output.name}, reason, YOLOX, lines=lines)


def recognize_ssd(facts: GraphFacts, image: ImageShape) -> Recognized | None:
    """Recognize two outputs with the same number of rows: boxes [1, n, (1,) 4] and scores [1, n, classes]."""
    if len(facts.outputs) != 2:
        return None
    boxes = [o for o in facts.outputs if o.shape[-1:] == (4,) and len(o.shape) in (3, 4)]
    scores = [o for o in facts.outputs if len(o.shape) == 3 and o not in boxes]
    if len(boxes) != 1 or len(scores) != 1 or boxes[0].shape[1] != scores[0].shape[1]:
        return None
    ends = facts.activations(scores[0].name)
    if not ends & {"Sigmoid", "Softmax"} or not facts.activations(boxes[0].name) & ARITHMETIC:
        return None
    classes = scores[0].shape[-1]
    first = 1 if classes == 90 else 0
    lines = [line for line in (label_line(facts.metadata, classes, columns_from=first),) if line]
    if first:
        lines.append(CardLine("first_class", 1, "90 columns are COCO's ids from 1: background is cut off"))
    roles = {"boxes": boxes[0].name, "scores": scores[0].name}
    reason = f"boxes and scores of {boxes[0].shape[1]} priors"
    return Recognized("detect", "ssd", roles, reason, TENSORFLOW_SSD, guessed=True, lines=lines)


def recognize_centerface(facts: GraphFacts, image: ImageShape) -> Recognized | None:
    """Recognize four maps of the same size with 1, 2, 2 and 10 channels."""
    channels = [o.shape[1] for o in facts.outputs if len(o.shape) == 4]
    if channels != [1, 2, 2, 10] or len(facts.outputs) != 4:
        return None
    roles = dict(
        zip(("heatmap", "scale", "offset", "landmarks"), (o.name for o in facts.outputs), strict=True)
    )
    reason = "maps of 1, 2, 2 and 10 channels: heat, size, offset, five landmarks"
    return Recognized(
        "detect",
        "centerface",
        roles,
        reason,
        CENTERFACE,
        lines=[CardLine("labels", ("face",), "CenterFace's one")],
    )


def recognize_detr(facts: GraphFacts, image: ImageShape) -> Recognized | None:
    """Recognize logits [1, queries, classes] and boxes [1, queries, 4] that end in a sigmoid."""
    boxes = [o for o in facts.outputs if len(o.shape) == 3 and o.shape[2] == 4]
    logits = [o for o in facts.outputs if len(o.shape) == 3 and o.shape[2] != 4]
    if len(facts.outputs) != 2 or len(boxes) != 1 or len(logits) != 1:
        return None
    queries = boxes[0].shape[1]
    if logits[0].shape[1] != queries or queries > MOST_QUERIES:
        return None
    if facts.activations(logits[0].name) & {"Sigmoid", "Softmax"}:
        return None
    columns = logits[0].shape[2]
    named = len(facts.source.files.labels)
    softmax = columns == named + 1 if named else columns in (81, 92)  # a last class for no object
    reason = "no class more for no object"
    lines = [] if softmax else [CardLine("activation", "sigmoid", reason, not named)]
    if labels := label_line(facts.metadata, columns - softmax):
        lines.append(labels)
    roles = {"logits": logits[0].name, "boxes": boxes[0].name}
    reason = f"{queries} queries, {columns} logits and a box for each"
    return Recognized("detect", "detr", roles, reason, DETR, guessed=not named, lines=lines)


def recognize_rtdetr(facts: GraphFacts, image: ImageShape) -> Recognized | None:
    """RT-DETR as Ultralytics exports it: one output [1, 300, 4 + classes], all 0 to 1."""
    if len(facts.outputs) != 1 or len(facts.outputs[0].shape) != 3:
        return None
    output = facts.outputs[0]
    queries, columns = output.shape[1:]
    if queries != 300 or columns < 5 or "Sigmoid" not in facts.activations(output.name):
        return None
    lines = [line for line in (label_line(facts.metadata, columns - 4),) if line]
    reason = f"300 queries of 4 + {columns - 4} numbers that end in a sigmoid"
    return Recognized("detect", "rtdetr", {"predictions": output.name}, reason, RTDETR, lines=lines)


def recognize_nanodet(facts: GraphFacts, image: ImageShape) -> Recognized | None:
    """Recognize one output [1, cells, classes + 4 x 8]: NanoDet's distances from 0 to 7."""
    if len(facts.outputs) != 1 or len(facts.outputs[0].shape) != 3:
        return None
    output = facts.outputs[0]
    rows, columns = output.shape[1:]
    strides = next((s for s in STRIDES[::-1] if rows == cells(image, s)), None)
    if strides is None or columns <= 32 or "Sigmoid" not in facts.activations(output.name):
        return None
    lines = [line for line in (label_line(facts.metadata, columns - 32),) if line]
    if strides != STRIDES[1]:
        lines.append(CardLine("strides", strides, "the output has as many rows as these grids have cells"))
        lines.append(CardLine("offset", 0.5, "three grids are NanoDet's, not NanoDet-Plus'", True))
    reason = f"{rows} rows are the cells of strides {list(strides)}, {columns - 32} classes + 4 x 8 distances"
    return Recognized("detect", "nanodet", {"predictions": output.name}, reason, NANODET, lines=lines)


def recognize_fastestdet(facts: GraphFacts, image: ImageShape) -> Recognized | None:
    """Recognize one map of 5 + classes channels at stride 16: a sigmoid, plain numbers, a softmax."""
    if len(facts.outputs) != 1 or len(facts.outputs[0].shape) != 4:
        return None
    output = facts.outputs[0]
    if output.shape[2:] != (image.height // 16, image.width // 16) or output.shape[1] < 6:
        return None
    if not {"Sigmoid", "Softmax"} <= facts.activations(output.name):
        return None
    classes = output.shape[1] - 5
    lines = [line for line in (label_line(facts.metadata, classes),) if line]
    reason = f"one map of 5 + {classes} channels at stride 16, sigmoid and softmax"
    return Recognized("detect", "fastestdet", {"predictions": output.name}, reason, FASTESTDET, lines=lines)


def recognize_centernet(facts: GraphFacts, image: ImageShape) -> Recognized | None:
    """Recognize three maps of one size: a heatmap of the classes, and two channels each for size and
    offset."""
    maps = [o for o in facts.outputs if len(o.shape) == 4]
    if len(maps) != 3 or len(facts.outputs) != 3 or len({o.shape[2:] for o in maps}) != 1:
        return None
    heat = [o for o in maps if o.shape[1] != 2]
    pairs = [o for o in maps if o.shape[1] == 2]
    if len(heat) != 1 or len(pairs) != 2:
        return None
    classes = heat[0].shape[1]
    lines = [line for line in (label_line(facts.metadata, classes),) if line]
    if "Sigmoid" in facts.activations(heat[0].name):
        lines.append(CardLine("logits", False, "the heatmap ends in a sigmoid"))
    roles = {"heatmap": heat[0].name, "size": pairs[0].name, "offset": pairs[1].name}
    reason = f"maps of {classes}, 2 and 2 channels: heat, and size before offset as the project has them"
    return Recognized("detect", "centernet", roles, reason, CENTERNET, guessed=True, lines=lines)


def recognize_ssd_anchors(facts: GraphFacts, image: ImageShape) -> Recognized | None:
    """SSD whose boxes are relative to anchors that are not in the graph."""
    boxes = [o for o in facts.outputs if o.shape[-1:] == (4,) and len(o.shape) in (3, 4)]
    scores = [o for o in facts.outputs if len(o.shape) == 3 and o not in boxes]
    if len(facts.outputs) != 2 or len(boxes) != 1 or len(scores) != 1:
        return None
    if boxes[0].shape[1] != scores[0].shape[1] or boxes[0].shape[1] <= MOST_QUERIES:
        return None
    classes = scores[0].shape[-1]
    lines = (
        [CardLine("first_class", 1, "91 columns are COCO's ids, the first is background")]
        if classes == 91
        else []
    )
    if labels := label_line(facts.metadata, classes - 1, columns_from=len(lines)):
        lines.append(labels)
    roles = {"boxes": boxes[0].name, "scores": scores[0].name}
    reason = f"{boxes[0].shape[1]} boxes relative to anchors, and scores without a sigmoid"
    return Recognized("detect", "ssd-anchors", roles, reason, TENSORFLOW_SSD, guessed=True, lines=lines)


def recognize_postprocessed(facts: GraphFacts, image: ImageShape) -> Recognized | None:
    """Recognize three outputs with the same number of rows: boxes, scores and classes, which are integers or
    named so."""
    boxes = [o for o in facts.outputs if o.shape[-1:] == (4,)]
    rows = [o for o in facts.outputs if o not in boxes and max(o.shape, default=0) > 1]
    if len(boxes) != 1 or len(rows) != 2 or len(facts.outputs) > 4:
        return None
    whole = [o for o in rows if o.dtype.startswith("int") or "class" in o.name or "label" in o.name]
    if len(whole) != 1:
        return None
    scores = next(o for o in rows if o is not whole[0])
    roles = {"boxes": boxes[0].name, "scores": scores.name, "classes": whole[0].name}
    count = [o for o in facts.outputs if o not in (*boxes, *rows)]
    if count:
        roles["count"] = count[0].name
    return Recognized("detect", "postprocessed", roles, "boxes, scores and classes", RTDETR, guessed=True)


RECOGNIZERS = Recognizers(
    pictures={
        110: recognize_yolox,
        120: recognize_nanodet,
        130: recognize_yolo,
        140: recognize_rtdetr,
        150: recognize_centerface,
        160: recognize_centernet,
        170: recognize_blazeface,
        210: recognize_ssd,
        220: recognize_detr,
        230: recognize_ssd_anchors,
        240: recognize_postprocessed,
        260: recognize_fastestdet,
    }
)
