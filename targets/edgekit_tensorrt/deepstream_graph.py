"""A detector's graph between the input and the parser of DeepStream's Gst-nvinfer.

    float32 [1, channels, height, width] -> a std for each channel -> NHWC, if the model needs it
      -> the variant's nodes, float16 as float32: nvinfer's precision flags choose float16
      -> the boxes of the card's decoder, before NMS

The parser ``NvDsInferParseCustomTfSSD`` reads three float32 outputs, whose first dimension is the batch:
``detection_boxes`` [1, n, 4], which are y1, x1, y2, x2 as parts of the input, and for each box its best class
in ``detection_classes`` [1, n] with its score in ``detection_scores`` [1, n]. Sources: nvdsinfer_customparser
and nvdsinfer of DeepStream 6.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
)  # fmt: skip
from edgekit.processing import Card
from edgekit.processing.inputs.image import ImageInput
from edgekit.tasks.detect.boxes import grid_cells
from edgekit.tasks.detect.end2end import ORDERS
from edgekit.tensor_spec import Array

FLOAT, HALF = ir.DataType.FLOAT, ir.DataType.FLOAT16
OUTPUTS = ("detection_boxes", "detection_scores", "detection_classes")
DECODERS = ("end2end", "rtdetr", "ssd", "yolov5", "yolov8", "yolox")
END = 1 << 30
LARGEST_EXPONENT = 20.0
"""As in the decoder: exp(20) strides are far outside of any image."""


class _Nodes:
    """Adds nodes to the end of a graph, or before one of its nodes."""

    def __init__(self, model: ir.Model, anchor: ir.Node | None = None) -> None:
        self._model, self._anchor = model, anchor

    def __call__(self, op: str, *operands: ir.Value | Array, outputs: int = 1, **attributes: Any) -> Any:
        """Return the output, or a list of them. Arrays become weights."""
        weight = f"deepstream/{op}/weight"
        values = [
            add_constant(self._model, value, weight) if isinstance(value, np.ndarray) else value
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

    def columns(self, rows: ir.Value, start: int, stop: int = END) -> Any:
        """Slice [1, n, columns] along its last axis."""
        return self("Slice", rows, *(np.array([number], np.int64) for number in (start, stop, 2)))

    def corners(self, centre: ir.Value, size: ir.Value) -> Any:
        half = self("Mul", size, np.array([0.5], np.float32))
        return self("Concat", self("Sub", centre, half), self("Add", centre, half), axis=2)

    def reordered(self, boxes: ir.Value, order: tuple[int, ...]) -> Any:
        return self("Gather", boxes, np.array(order, np.int64), axis=2)


def with_parser_outputs(model: ir.Model, card: Card, image: ImageInput) -> None:
    """Give the model nvinfer's input and the parser's outputs, in place. Its shapes are known.

    Args:
        model: In the canonical opset, with the card's outputs.
        card: Card with one image input and a task whose decoder is in ``DECODERS``.
    """
    task, constants = card.task, card.constants()
    assert task is not None
    _undo_float16(model)
    for value in [value for value in model.graph.inputs if value.name in constants]:
        model.graph.inputs.remove(value)
        value.const_value = ir.tensor(constants[str(value.name)], name=value.name)
        model.graph.register_initializer(value)
    _replace_input(model, image)
    old = list(model.graph.outputs)
    by_name = {value.name: value for value in old}
    outputs = {role: by_name[name] for role, name in task.outputs.items()}
    for value in (v for node in model.graph for v in node.outputs if v.name in OUTPUTS):
        value.name = free_name(model, f"{value.name}/source")
    model.graph.outputs.clear()
    values = _decoded(_Nodes(model), task.decode, outputs, task.options, image)
    for name, value in zip(OUTPUTS, values, strict=True):
        value.name = name
        model.graph.outputs.append(value)
    for producer in (value.producer() for value in old):
        if producer is not None:
            remove_unread(producer)


def _decoded(
    add: _Nodes, decode: str, outputs: Mapping[str, ir.Value], options: Any, image: ImageInput
) -> list[ir.Value]:
    boxes, scores, classes = _candidates(add, decode, outputs, options, image)
    if not getattr(options, "normalized", decode == "ssd"):
        boxes = add("Div", boxes, np.array([image.width, image.height] * 2, np.float32))
    if classes is None:
        scores, classes = add("TopK", scores, np.array([1], np.int64), outputs=2, axis=2)
    classes = add("Cast", classes, to=int(FLOAT))
    if getattr(options, "first_class", 0):
        classes = add("Add", classes, np.array([options.first_class], np.float32))
    # nvinfer opens the batch's dimension: the shape is written out, so that TensorRT knows it all the same.
    total = (dims_of(outputs["scores" if decode == "ssd" else "predictions"]) or ())[
        2 if decode == "yolov8" else 1
    ]
    values = []
    for value, columns in ((add.reordered(boxes, (1, 0, 3, 2)), (4,)), (scores, ()), (classes, ())):
        dims = (1, total, *columns)
        shaped = add("Reshape", value, np.array(dims, np.int64))
        shaped.type, shaped.shape = ir.TensorType(FLOAT), ir.Shape(dims)
        values.append(shaped)
    return values


def _candidates(
    add: _Nodes, decode: str, outputs: Mapping[str, ir.Value], options: Any, image: ImageInput
) -> tuple[Any, Any, Any]:
    """Decode boxes as the modules of the task ``detect`` do.

    Returns:
        boxes [1, n, 4]: x1, y1, x2, y2; scores [1, n, classes]; None, or the classes [1, n, 1] of one score.
    """
    if decode == "ssd":
        rows = add("Reshape", outputs["boxes"], np.array([1, -1, 4], np.int64))
        return add.reordered(rows, (1, 0, 3, 2)), outputs["scores"], None
    rows = outputs["predictions"]
    if decode == "end2end":
        boxes = add.reordered(add.columns(rows, 0, 4), ORDERS[options.boxes])
        if options.boxes == "xywh":
            boxes = add.corners(add.columns(boxes, 0, 2), add.columns(boxes, 2, 4))
        return boxes, add.columns(rows, 4, 5), add.columns(rows, 5)
    if decode == "yolov8":
        rows = add("Transpose", rows, perm=[0, 2, 1])
    centre, size = add.columns(rows, 0, 2), add.columns(rows, 2, 4)
    if decode == "yolox":
        cells, strides = grid_cells(tuple(options.strides), image.width, image.height)
        centre = add("Mul", add("Add", centre, cells), strides)
        bounded = add("Min", size, np.array([LARGEST_EXPONENT], np.float32))
        size = add("Mul", add("Exp", bounded), strides)
    if decode in ("yolov8", "rtdetr"):
        return add.corners(centre, size), add.columns(rows, 4), None
    return add.corners(centre, size), add("Mul", add.columns(rows, 5), add.columns(rows, 4, 5)), None


def _replace_input(model: ir.Model, image: ImageInput) -> None:
    old = next(value for value in model.graph.inputs if value.name == image.name)
    shape = ir.Shape((1, image.channels, image.height, image.width))
    new = ir.Value(name=free_name(model, "pixels"), type=ir.TensorType(FLOAT), shape=shape)
    add, value = _Nodes(model, model.graph[0]), new
    if len(set(image.std)) > 1:
        value = add("Div", value, np.array(image.std, np.float32).reshape(1, -1, 1, 1))
    if image.layout == "NHWC":
        value = add("Transpose", value, perm=[0, 2, 3, 1])
    if value is not new:
        old.replace_all_uses_with(value)
        model.graph.inputs[list(model.graph.inputs).index(old)] = new


def _undo_float16(model: ir.Model) -> None:
    for value in model.graph.initializers.values():
        array = array_of(value)
        if value.dtype == HALF and array is not None:
            value.const_value = ir.tensor(array.astype(np.float32), name=value.name)
            value.type = ir.TensorType(FLOAT)
    for node in list(model.graph.all_nodes()):
        for value in node.outputs:
            if value.dtype == HALF:
                value.type = ir.TensorType(FLOAT)
        if node.op_type == "Cast" and int_of(node, "to", 0) in (HALF, FLOAT):
            node.attributes["to"] = ir.AttrInt64("to", int(FLOAT))
            source = node.inputs[0]
            if source is not None and source.dtype == FLOAT:
                bypass(node, source)
