"""The custom operator that SSD detectors end in: boxes decoded, and the best of them kept.

Source: tensorflow/lite/kernels/detection_postprocess.cc.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from edgekit_tflite.graph import Op
from edgekit_tflite.importer.onnx_graph import OnnxGraph, UnreadableError
from edgekit_tflite.importer.readers import need_rank, reads_custom

MAX_DETECTIONS = 4096


class Options(NamedTuple):
    """The operator's options, by their names in its flexbuffer."""

    max_detections: int
    max_classes_per_detection: int
    num_classes: int
    nms_score_threshold: float
    nms_iou_threshold: float
    y_scale: float
    x_scale: float
    h_scale: float
    w_scale: float
    use_regular_nms: bool
    detections_per_class: int


@reads_custom("TFLite_Detection_PostProcess", inputs=3, outputs=4)
def detection_postprocess(g: OnnxGraph, op: Op) -> None:
    """NonMaxSuppression of decoded boxes; what is fewer than the most is filled with zeros.

    inputs      boxes 1, N, 4 relative to the anchors; scores 1, N, classes; anchors N, 4: y, x, h, w
    outputs     boxes 1, K, 4: y, x of two corners; classes 1, K; scores 1, K; how many of the K there are: 1

    The plain form suppresses the boxes by their best class, the regular one each class by itself.
    """
    options = _options(g, op)
    encoded, scores, anchors = op.inputs[:3]
    count, classes = need_rank(g, scores, 3)[1:]
    fits = g.shape(encoded) == (1, count, 4) and g.shape(anchors) == (count, 4)
    # The first class may be the background, which is not counted among the classes.
    background = classes - options.num_classes
    if not fits or background not in (0, 1) or g.shape(scores)[0] != 1:
        raise UnreadableError(
            op, f"it has boxes {g.shape(encoded)}, scores {g.shape(scores)} and anchors {g.shape(anchors)}"
        )
    boxes = _decoded(g, encoded, anchors, options)
    objects = g.value(scores)
    if background:
        objects = g.node("Slice", [objects, g.int64([1]), g.int64([classes]), g.int64([2])])
    if options.use_regular_nms:
        box, kind, score = _best_by_class(g, boxes, objects, options)
    else:
        box, kind, score = _best_of_all(g, boxes, objects, options)
    _set_padded(g, op, boxes, (box, kind, score), options.max_detections)


def _options(g: OnnxGraph, op: Op) -> Options:
    from flatbuffers import flexbuffers

    values: dict[str, Any] = dict(_OPTIONAL)
    for name in Options._fields:
        try:
            entry = flexbuffers.GetRoot(bytearray(op.options["custom_options"])).AsMap[name]
            if not entry.IsBool and not entry.IsNumeric:
                raise ValueError(f"{name} is not a number")
            values[name] = entry.AsFloat if name in FLOATS else entry.AsInt
        except Exception as problem:  # the package's reader checks nothing: anything may be raised
            if name not in values:
                raise UnreadableError(op, f"its options are damaged, or lack {name}") from problem
    options = Options(**values)
    scales = (options.y_scale, options.x_scale, options.h_scale, options.w_scale)
    fits = all(math.isfinite(scale) and scale > 0 for scale in scales) and math.isfinite(
        options.nms_iou_threshold
    )
    if not fits or not 0 < options.max_detections <= MAX_DETECTIONS or options.detections_per_class < 1:
        raise UnreadableError(op, f"its options are {options}")
    if not options.use_regular_nms and options.max_classes_per_detection != 1:
        raise UnreadableError(
            op, f"it gives {options.max_classes_per_detection} classes per box; only one is supported"
        )
    return options


FLOATS = ("nms_score_threshold", "nms_iou_threshold", "y_scale", "x_scale", "h_scale", "w_scale")
_OPTIONAL: Mapping[str, Any] = {"use_regular_nms": False, "detections_per_class": 100}


def _decoded(g: OnnxGraph, encoded: int, anchors: int, options: Options) -> str:
    """Return the boxes 1, N, 4: y and x of two corners."""
    priors = g.constant_floats(anchors)
    if priors is None:
        raise UnreadableError(g.op, "the model computes its anchors; they must be constant")
    with np.errstate(all="ignore"):
        centre, half_size = priors[None, :, :2].astype(np.float32), priors[None, :, 2:].astype(np.float32) / 2
        size = half_size * 2
    scales = [(options.y_scale, options.x_scale), (options.h_scale, options.w_scale)]
    offset, grown = g.nodes("Split", [g.value(encoded), g.int64([2, 2])], 2, axis=2)
    # (y / scale) * anchor's height + anchor's y; exp(h / scale) * anchor's height, half of it to each side
    position = g.node("Mul", [g.node("Div", [offset, _floats(g, scales[0])]), g.constant(size)])
    position = g.node("Add", [position, g.constant(centre)])
    half = g.node(
        "Mul", [g.node("Exp", [g.node("Div", [grown, _floats(g, scales[1])])]), g.constant(half_size)]
    )
    return g.node("Concat", [g.node("Sub", [position, half]), g.node("Add", [position, half])], axis=2)


def _floats(g: OnnxGraph, numbers: tuple[float, ...]) -> str:
    return g.constant(np.array(numbers, np.float32))


def _suppressed(g: OnnxGraph, boxes: str, scores: str, limit: int, options: Options) -> tuple[str, str]:
    """Index of the box and of the class of each that is kept; ``scores`` are 1, classes, N."""
    # It keeps what reaches the threshold, ONNX what is above it.
    above = float(np.nextafter(np.float32(options.nms_score_threshold), np.float32(-np.inf)))
    inputs = [boxes, scores, g.int64([limit]), g.scalar(options.nms_iou_threshold, "float32")]
    selected = g.node("NonMaxSuppression", [*inputs, g.scalar(above, "float32")])
    _, kind, box = g.nodes("Split", [selected, g.int64([1, 1, 1])], 3, axis=1)
    return g.reshape(box, (-1,)), g.reshape(kind, (-1,))


def _best_of_all(g: OnnxGraph, boxes: str, scores: str, options: Options) -> tuple[str, str, str]:
    """Return indices, classes and scores of the boxes, each with its best class; the best box first."""
    best = g.node("ReduceMax", [scores, g.int64([2])], keepdims=1)
    kinds = g.reshape(g.node("ArgMax", [scores], axis=2, keepdims=0), (-1,))
    transposed = g.node("Transpose", [best], perm=(0, 2, 1))
    box, _ = _suppressed(g, boxes, transposed, options.max_detections, options)
    gathered = [g.node("Gather", [values, box], axis=0) for values in (kinds, g.reshape(best, (-1,)))]
    return box, gathered[0], gathered[1]


def _best_by_class(g: OnnxGraph, boxes: str, scores: str, options: Options) -> tuple[str, str, str]:
    """Return indices, classes and scores, each class suppressed by itself; the best of all are kept."""
    transposed = g.node("Transpose", [scores], perm=(0, 2, 1))
    box, kind = _suppressed(g, boxes, transposed, options.detections_per_class, options)
    places = g.node("Concat", [g.reshape(values, (-1, 1)) for values in (kind, box)], axis=1)
    flat = g.node("Squeeze", [transposed, g.int64([0])])
    score = g.node("GatherND", [flat, places])
    count = g.node("Min", [g.node("Shape", [score]), g.int64([options.max_detections])])
    best, order = g.nodes("TopK", [score, count], 2, axis=0, largest=1, sorted=1)
    box, kind = (g.node("Gather", [values, order], axis=0) for values in (box, kind))
    return box, kind, best


def _set_padded(g: OnnxGraph, op: Op, boxes: str, detections: tuple[str, str, str], limit: int) -> None:
    box, kind, score = detections
    corners = g.node("Gather", [g.reshape(boxes, (-1, 4)), box], axis=0)
    values = (corners, g.cast(kind, "float32"), score)
    for out, value, shape in zip(op.outputs, values, ((limit, 4), (limit,), (limit,)), strict=False):
        count = g.node("Shape", [value], start=0, end=1)
        missing = g.node("Sub", [g.int64([limit]), count])
        none = g.int64([0] * (2 * len(shape) - len(shape)))
        after = [missing] if len(shape) == 1 else [missing, g.int64([0])]
        padded = g.node("Pad", [value, g.node("Concat", [none, *after], axis=0)])
        g.set(out, g.reshape(padded, (1, *shape)))
    number = g.cast(g.node("Shape", [score]), "float32")
    g.set(op.outputs[3], g.reshape(number, (1,)))
