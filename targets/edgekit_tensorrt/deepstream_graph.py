"""A detector's graph between the input and the parser of DeepStream's Gst-nvinfer.

    float32 [1, channels, height, width] -> a std for each channel -> NHWC, if the model needs it
      -> the variant's nodes, float16 as float32: nvinfer's precision flags choose float16
      -> the boxes of the card's decoder, before NMS

The parser ``NvDsInferParseCustomTfSSD`` reads three float32 outputs, whose first dimension is the batch:
``detection_boxes`` [1, n, 4], which are y1, x1, y2, x2 as parts of the input, and for each box its best class
in ``detection_classes`` [1, n] with its score in ``detection_scores`` [1, n]. Sources:
nvdsinfer_customparser and nvdsinfer of DeepStream 6.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.rewriting import (
    add_constant,
    array_of,
    bypass,
    dims_of,
    free_name,
    int_of,
    remove_unread,
)
from edgekit.processing import Card
from edgekit.processing.inputs.image import ImageInput
from edgekit.tasks.detect.boxes import grid_cells
from edgekit.tasks.detect.end2end import ORDERS
from edgekit.tensor_spec import Array

FLOAT, HALF = ir.DataType.FLOAT, ir.DataType.FLOAT16
OUTPUTS = ("detection_boxes", "detection_scores", "detection_classes")
END = 1 << 30
LARGEST_EXPONENT = 20.0
"""As in the decoder: exp(20) strides are far outside of any image."""


class _Candidates(NamedTuple):
    """Boxes before NMS.

    Attributes:
        total: Number of boxes.
        boxes: [1, total, 4]: x1, y1, x2, y2.
        scores: [1, total, classes], or [1, total, 1] if ``classes`` is set.
        classes: [1, total, 1]. None means the best of ``scores``.
        is_normalized: Whether boxes are parts of the input instead of its pixels.
        first_class: Number of the first class.
    """

    total: int
    boxes: ir.Value
    scores: ir.Value
    classes: ir.Value | None = None
    is_normalized: bool = False
    first_class: int = 0


class _Nodes:
    """Adds nodes to the end of a graph, or before one of its nodes."""

    def __init__(self, model: ir.Model, anchor: ir.Node | None = None) -> None:
        self._model, self._anchor = model, anchor

    def __call__(self, op: str, *operands: ir.Value | Array, outputs: int = 1, **attributes: Any) -> Any:
        """Return the output, or a list of them. Arrays become weights."""
        values = [
            add_constant(self._model, value, f"deepstream/{op}/weight")
            if isinstance(value, np.ndarray)
            else value
            for value in operands
        ]
        name = free_name(self._model, f"deepstream/{op}")
        node = ir.node(op, values, attributes, name=name, num_outputs=outputs)
        for index, value in enumerate(node.outputs):
            value.name = free_name(self._model, f"{name}/{index}") if index else name
        if self._anchor is None:
            self._model.graph.append(node)
        else:
            self._model.graph.insert_before(self._anchor, node)
        return node.outputs[0] if outputs == 1 else list(node.outputs)

    def columns(self, rows: ir.Value, start: int, stop: int = END) -> ir.Value:
        """Slice [1, n, columns] along its last axis."""
        bounds = [np.array([number], np.int64) for number in (start, stop, 2)]
        part: ir.Value = self("Slice", rows, *bounds)
        return part

    def corners(self, centre: ir.Value, size: ir.Value) -> ir.Value:
        half = self("Mul", size, np.float32(0.5).reshape(1))
        ends: ir.Value = self("Concat", self("Sub", centre, half), self("Add", centre, half), axis=2)
        return ends

    def reordered(self, boxes: ir.Value, order: tuple[int, ...]) -> ir.Value:
        columns: ir.Value = self("Gather", boxes, np.array(order, np.int64), axis=2)
        return columns


def with_parser_outputs(model: ir.Model, card: Card, image: ImageInput) -> None:
    """Give the model nvinfer's input and the parser's outputs, in place. Its shapes are known.

    Args:
        model: In the canonical opset, with the card's outputs.
        card: Card with one image input and a task whose decoder is in ``DECODERS``.
    """
    assert card.task is not None
    _undo_float16(model)
    for value in [value for value in model.graph.inputs if value.name in card.constants()]:
        model.graph.inputs.remove(value)
        value.const_value = ir.tensor(card.constants()[str(value.name)], name=value.name)
        model.graph.register_initializer(value)
    _replace_input(model, image)
    by_name = {value.name: value for value in model.graph.outputs}
    outputs = {role: by_name[name] for role, name in card.task.outputs.items()}
    old = list(model.graph.outputs)
    for name in OUTPUTS:
        for value in (v for node in model.graph for v in node.outputs if v.name == name):
            value.name = free_name(model, f"{name}/source")
    add = _Nodes(model)
    candidates = DECODERS[card.task.decode](add, outputs, card.task.options, image)
    model.graph.outputs.clear()
    for name, value in zip(OUTPUTS, _parts(add, candidates, image), strict=True):
        value.name = name
        model.graph.outputs.append(value)
    for value in old:
        producer = value.producer()
        if producer is not None:
            remove_unread(producer)


def _parts(add: _Nodes, found: _Candidates, image: ImageInput) -> list[ir.Value]:
    """Return the parser's three values."""
    boxes, scores, classes = found.boxes, found.scores, found.classes
    if not found.is_normalized:
        boxes = add("Div", boxes, np.array([image.width, image.height] * 2, np.float32))
    if classes is None:
        scores, classes = add("TopK", scores, np.array([1], np.int64), outputs=2, axis=2)
    classes = add("Cast", classes, to=int(FLOAT))
    if found.first_class:
        classes = add("Add", classes, np.array([found.first_class], np.float32))
    # nvinfer opens the batch's dimension: the shape is written out, so that TensorRT knows it all the same.
    values = []
    for value, columns in ((add.reordered(boxes, (1, 0, 3, 2)), (4,)), (scores, ()), (classes, ())):
        dims = (1, found.total, *columns)
        shaped = add("Reshape", value, np.array(dims, np.int64))
        shaped.type, shaped.shape = ir.TensorType(FLOAT), ir.Shape(dims)
        values.append(shaped)
    return values


def _replace_input(model: ir.Model, image: ImageInput) -> None:
    old = next(value for value in model.graph.inputs if value.name == image.name)
    scales = len(set(image.std)) > 1
    if not scales and image.layout == "NCHW":
        return
    shape = ir.Shape((1, image.channels, image.height, image.width))
    new = ir.Value(name=free_name(model, "pixels"), type=ir.TensorType(FLOAT), shape=shape)
    add, value = _Nodes(model, model.graph[0]), new
    if scales:
        value = add("Div", value, np.array(image.std, np.float32).reshape(1, -1, 1, 1))
    if image.layout == "NHWC":
        value = add("Transpose", value, perm=[0, 2, 3, 1])
    old.replace_all_uses_with(value)
    model.graph.inputs[list(model.graph.inputs).index(old)] = new


def _undo_float16(model: ir.Model) -> None:
    """Store and compute in float32 what is in float16."""
    for value in model.graph.initializers.values():
        array = array_of(value)
        if value.dtype == HALF and array is not None:
            value.const_value = ir.tensor(array.astype(np.float32), name=value.name)
            value.type = ir.TensorType(FLOAT)
    for node in list(model.graph.all_nodes()):
        for name, attribute in list(node.attributes.items()):
            if attribute.type == ir.AttributeType.TENSOR and attribute.value.dtype == HALF:
                node.attributes[name] = ir.AttrTensor(
                    name, ir.tensor(attribute.value.numpy().astype(np.float32))
                )
        for value in node.outputs:
            if value.dtype == HALF:
                value.type = ir.TensorType(FLOAT)
        if node.op_type != "Cast" or int_of(node, "to", 0) not in (HALF, FLOAT):
            continue
        node.attributes["to"] = ir.AttrInt64("to", int(FLOAT))
        source = node.inputs[0]
        if source is not None and source.dtype == FLOAT:
            bypass(node, source)


# --- decoders of the task ``detect``, as their modules describe them -------------------------------------


def _count(rows: ir.Value, axis: int = 1) -> int:
    dims = dims_of(rows)
    assert dims is not None
    return dims[axis]


def _yolox(add: _Nodes, outputs: Mapping[str, ir.Value], options: Any, image: ImageInput) -> _Candidates:
    rows = outputs["predictions"]
    cells, strides = grid_cells(tuple(options.strides), image.width, image.height)
    centre = add("Mul", add("Add", add.columns(rows, 0, 2), cells), strides)
    bounded = add("Min", add.columns(rows, 2, 4), np.array([LARGEST_EXPONENT], np.float32))
    boxes = add.corners(centre, add("Mul", add("Exp", bounded), strides))
    scores = add("Mul", add.columns(rows, 5), add.columns(rows, 4, 5))
    return _Candidates(_count(rows), boxes, scores)


def _yolov5(add: _Nodes, outputs: Mapping[str, ir.Value], options: Any, image: ImageInput) -> _Candidates:
    rows = outputs["predictions"]
    boxes = add.corners(add.columns(rows, 0, 2), add.columns(rows, 2, 4))
    scores = add("Mul", add.columns(rows, 5), add.columns(rows, 4, 5))
    return _Candidates(_count(rows), boxes, scores, is_normalized=options.normalized)


def _yolov8(add: _Nodes, outputs: Mapping[str, ir.Value], options: Any, image: ImageInput) -> _Candidates:
    planes = outputs["predictions"]
    rows = add("Transpose", planes, perm=[0, 2, 1])
    return _centred(add, rows, _count(planes, 2), options)


def _rtdetr(add: _Nodes, outputs: Mapping[str, ir.Value], options: Any, image: ImageInput) -> _Candidates:
    return _centred(add, outputs["predictions"], _count(outputs["predictions"]), options)


def _centred(add: _Nodes, rows: ir.Value, total: int, options: Any) -> _Candidates:
    boxes = add.corners(add.columns(rows, 0, 2), add.columns(rows, 2, 4))
    return _Candidates(total, boxes, add.columns(rows, 4), is_normalized=options.normalized)


def _ssd(add: _Nodes, outputs: Mapping[str, ir.Value], options: Any, image: ImageInput) -> _Candidates:
    rows = add("Reshape", outputs["boxes"], np.array([1, -1, 4], np.int64))
    boxes = add.reordered(rows, (1, 0, 3, 2))
    scores = outputs["scores"]
    return _Candidates(_count(scores), boxes, scores, is_normalized=True, first_class=options.first_class)


def _end2end(add: _Nodes, outputs: Mapping[str, ir.Value], options: Any, image: ImageInput) -> _Candidates:
    rows = outputs["predictions"]
    boxes = add.reordered(add.columns(rows, 0, 4), ORDERS[options.boxes])
    if options.boxes == "xywh":
        boxes = add.corners(add.columns(boxes, 0, 2), add.columns(boxes, 2, 4))
    scores, classes = add.columns(rows, 4, 5), add.columns(rows, 5)
    return _Candidates(_count(rows), boxes, scores, classes, options.normalized)


DECODERS: Mapping[str, Callable[[_Nodes, Mapping[str, ir.Value], Any, ImageInput], _Candidates]] = {
    "end2end": _end2end,
    "rtdetr": _rtdetr,
    "ssd": _ssd,
    "yolov5": _yolov5,
    "yolov8": _yolov8,
    "yolox": _yolox,
}
