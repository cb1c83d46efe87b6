"""Recognizes detectors by the number and the form of their outputs."""

from __future__ import annotations

from edgekit.drafting.facts import Facts
from edgekit.drafting.image_habits import CENTERFACE, TENSORFLOW_SSD, YOLOX
from edgekit.drafting.labels import label_line
from edgekit.drafting.lines import Line
from edgekit.drafting.recognized import ImageShape, Recognized, cells

STRIDES = ((8, 16, 32), (8, 16, 32, 64))


def recognize_yolox(facts: Facts, image: ImageShape) -> Recognized | None:
    """One output [1, cells, 5 + classes], boxes not decoded: a Conv makes them, a Sigmoid the rest."""
    if len(facts.outputs) != 1 or len(facts.outputs[0].shape) != 3:
        return None
    output = facts.outputs[0]
    rows, columns = output.shape[1:]
    strides = next((s for s in STRIDES if rows == cells(image, s)), None)
    if strides is None or columns < 6 or not {"Conv", "Sigmoid"} <= facts.activations(output.name):
        return None
    why = f"{rows} rows are the cells of strides {list(strides)}, 5 + {columns - 5} columns, boxes raw"
    lines = [line for line in (label_line(facts.metadata, columns - 5),) if line]
    if strides != STRIDES[0]:
        lines.append(Line("strides", strides, "the output has as many rows as these grids have cells"))
    return Recognized("detect", "yolox", {"predictions": output.name}, why, YOLOX, lines=lines)


def recognize_ssd(facts: Facts, image: ImageShape) -> Recognized | None:
    """Two outputs with as many rows: boxes [1, n, (1,) 4] and scores [1, n, classes]."""
    if len(facts.outputs) != 2:
        return None
    boxes = [o for o in facts.outputs if o.shape[-1:] == (4,) and len(o.shape) in (3, 4)]
    scores = [o for o in facts.outputs if len(o.shape) == 3 and o not in boxes]
    if len(boxes) != 1 or len(scores) != 1 or boxes[0].shape[1] != scores[0].shape[1]:
        return None
    if "Sigmoid" not in facts.activations(scores[0].name):
        return None
    classes = scores[0].shape[-1]
    first = 1 if classes == 90 else 0
    lines = [line for line in (label_line(facts.metadata, classes, columns_from=first),) if line]
    if first:
        lines.append(Line("first_class", 1, "90 columns are COCO's ids from 1: background is cut off"))
    roles = {"boxes": boxes[0].name, "scores": scores[0].name}
    why = f"boxes and scores of {boxes[0].shape[1]} priors"
    return Recognized("detect", "ssd", roles, why, TENSORFLOW_SSD, guessed=True, lines=lines)


def recognize_centerface(facts: Facts, image: ImageShape) -> Recognized | None:
    """Four maps of the same size with 1, 2, 2 and 10 channels."""
    channels = [o.shape[1] for o in facts.outputs if len(o.shape) == 4]
    if channels != [1, 2, 2, 10] or len(facts.outputs) != 4:
        return None
    roles = dict(
        zip(("heatmap", "scale", "offset", "landmarks"), (o.name for o in facts.outputs), strict=True)
    )
    why = "maps of 1, 2, 2 and 10 channels: heat, size, offset, five landmarks"
    return Recognized(
        "detect", "centerface", roles, why, CENTERFACE, lines=[Line("labels", ("face",), "CenterFace's one")]
    )
