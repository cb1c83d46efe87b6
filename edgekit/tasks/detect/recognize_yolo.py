"""Recognizes YOLO heads that are decoded in the graph, Ultralytics' exports and others, of four tasks."""

from __future__ import annotations

import ast
from dataclasses import replace

from edgekit.compiler.card_inference.facts import GraphFacts
from edgekit.compiler.card_inference.image_habits import ULTRALYTICS
from edgekit.compiler.card_inference.labels import label_line, names_in
from edgekit.compiler.card_inference.lines import CardLine
from edgekit.compiler.card_inference.recognized import ImageShape, Recognized, cells
from edgekit.tensor_spec import TensorSpec

STRIDES = ((8, 16, 32), (8, 16, 32, 64), (4, 8, 16, 32))
TASKS = {"detect": "detect", "segment": "segment-instances", "pose": "pose", "obb": "obb"}
"""Ultralytics' word -> a card's."""
ANCHORS = 3
"""Boxes of a cell in YOLOv5 and YOLOv7."""
MOST_ROWS = 1000
"""An output [1, n, 6] with fewer rows has been filtered: YOLOv10 and 26 give 300, NMS up to a few hundred."""
COCO_POINTS = 17


def recognize_yolo(facts: GraphFacts, image: ImageShape) -> Recognized | None:
    """Recognize one output of predictions, and an output of prototypes if the model segments instances.

    [1, 4 + classes + extra, cells] is YOLOv8's, [1, 3 x cells, 5 + classes + extra] YOLOv5's, and [1, n, 6 +
    extra] one without NMS; extra is what a task adds: 32 weights of masks, keypoints, an angle.
    """
    outputs = [o for o in facts.outputs if len(o.shape) == 3 and o.shape[0] == 1]
    prototypes = [o for o in facts.outputs if len(o.shape) == 4 and o.shape[0] == 1]
    if len(outputs) != 1 or len(prototypes) > 1 or len(facts.outputs) > 2:
        return None
    form = _form(outputs[0], image)
    if form is None:
        return None
    decode, columns, reason = form
    if decode == "end2end" and columns > 1 and not prototypes and facts.metadata.get("task") != "pose":
        return None  # RT-DETR has a score for each class
    task = facts.metadata.get("task") if facts.is_ultralytics else None
    kind = TASKS.get(task or ("segment" if prototypes else "detect"))
    if kind is None or (kind == "segment-instances") != bool(prototypes):
        return None
    masks = _channels(prototypes[0].shape, image) if prototypes else 0
    extra, lines = masks, []
    if kind == "pose":
        points, numbers = _keypoints(facts)
        extra = points * numbers
        lines = [CardLine("dimensions", 2, "the metadata's kpt_shape")] if numbers == 2 else []
    elif kind == "obb":
        extra = 1
    names = names_in(facts.metadata)
    classes = len(names[0]) if names and decode == "end2end" else columns - extra
    if classes < 1:
        return None
    if labels := label_line(facts.metadata, classes):
        lines.append(labels)
    if image.layout == "NHWC" and decode != "end2end":
        lines.append(
            CardLine("normalized", True, "Ultralytics' TFLite files give positions from 0 to 1", True)
        )
    roles = {"predictions": outputs[0].name}
    if prototypes:
        roles["prototypes"] = prototypes[0].name
    if task:
        reason += f"; the metadata's task is {task!r}"
    habits = ULTRALYTICS if facts.is_ultralytics else replace(ULTRALYTICS, certain=False)
    return Recognized(kind, decode, roles, reason, habits, task is None, lines)


def _form(output: TensorSpec, image: ImageShape) -> tuple[str, int, str] | None:
    """Return the decoder, the number of columns after box and objectness, and the reason. None if no form
    matches."""
    first, second = output.shape[1:]
    for strides in STRIDES:
        count = cells(image, strides)
        grids = f"the {count} cells of strides {list(strides)}"
        if second == count and first > 4:
            return "yolov8", first - 4, f"{second} columns are {grids}, 4 + {first - 4} rows"
        if first == ANCHORS * count and second > 5:
            return (
                "yolov5",
                second - 5,
                f"{first} rows are {ANCHORS} for each of {grids}, 5 + {second - 5} columns",
            )
    if first <= MOST_ROWS and 6 <= second <= 6 + 3 * COCO_POINTS and second < first:
        return "end2end", second - 5, f"{first} rows of {second} numbers are boxes that need no NMS"
    return None


def _channels(shape: tuple[int, ...], image: ImageShape) -> int:
    """Return the channels of prototypes at a quarter of the input's size, in either layout."""
    return shape[1] if shape[2:] == (image.height // 4, image.width // 4) else shape[3]


def _keypoints(facts: GraphFacts) -> tuple[int, int]:
    """Return the number of keypoints and the numbers per keypoint, from ``kpt_shape``."""
    try:
        points, numbers = ast.literal_eval(facts.metadata.get("kpt_shape", ""))
        return int(points), int(numbers)
    except (ValueError, SyntaxError, TypeError):
        return COCO_POINTS, 3
