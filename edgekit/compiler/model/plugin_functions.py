"""Functions of ONNX for TensorRT's plugins: the reference of a model with one of them.

    EfficientNMS_TRT(boxes BxNx4, scores BxNxC)
    =>  NonMaxSuppression for each class; the best ``max_output_boxes`` of all classes, padded with 0

Definition: https://github.com/NVIDIA/TensorRT/tree/release/10.3/plugin/efficientNMSPlugin
Only the reference runs it: the file for TensorRT keeps the plugin, and other targets refuse it.
"""

from __future__ import annotations

import onnx
import onnx.parser
import onnx_ir as ir

from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.rewriting import opset_of

NMS = "EfficientNMS_TRT"
DOMAIN = "edgekit.plugins"


def infer_plugin(node: ir.Node) -> None:
    sizes = _sizes(node)
    if sizes is None:
        return
    batch, _, _, capacity = sizes
    shapes = [(batch, 1), (batch, capacity, 4), (batch, capacity), (batch, capacity)]
    types = [ir.DataType.INT32, ir.DataType.FLOAT, ir.DataType.FLOAT, ir.DataType.INT32]
    for value, dims, dtype in zip(node.outputs, shapes, types, strict=True):
        value.type, value.shape = ir.TensorType(dtype), ir.Shape(dims)


def has_function(node: ir.Node) -> bool:
    """Return whether the reference can compute the node."""
    return _sizes(node) is not None


def with_functions(data: bytes, model: ir.Model) -> bytes:
    """Return a serialized model with a function for each of its plugins; without any, ``data`` itself."""
    nodes = {str(node.outputs[0].name): node for node in model.graph if node.op_type == NMS}
    if not nodes:
        return data
    proto = onnx.ModelProto.FromString(data)
    proto.opset_import.add(domain=DOMAIN, version=1)
    opset = opset_of((entry.domain, entry.version) for entry in proto.opset_import)
    for index, call in enumerate(proto.graph.node):
        node = nodes.get(call.output[0]) if call.op_type == NMS else None
        if node is not None and (sizes := _sizes(node)) is not None:
            call.op_type, call.domain = f"{NMS}_{index}", DOMAIN
            proto.functions.append(_efficient_nms(node, call.op_type, sizes, opset))
            del call.attribute[:]
    content: bytes = proto.SerializeToString(deterministic=True)
    return content


def _sizes(node: ir.Node) -> tuple[int, int, int, int] | None:
    """Return images, boxes, classes and the number of outputs of an EfficientNMS_TRT, or None if it is
    another plugin or form: a box for each class, or anchors."""
    if node.op_type != NMS or len(node.inputs) != 2 or len(node.outputs) != 4:
        return None
    boxes, scores = (static_dims(value) for value in node.inputs)
    capacity = _number(node, "max_output_boxes", 100)
    if boxes is None or scores is None or len(boxes) != 3 or len(scores) != 3 or boxes[2] != 4:
        return None
    if any(value is None or value.dtype != ir.DataType.FLOAT for value in node.inputs):
        return None
    if boxes[:2] != scores[:2] or 0 in (*boxes, *scores) or not 0 < capacity <= 2**20:
        return None
    return scores[0], scores[1], scores[2], int(capacity)


def _number(node: ir.Node, name: str, default: float) -> float:
    attribute = node.attributes.get(name)
    return default if attribute is None else float(attribute.value)


def _efficient_nms(
    node: ir.Node, name: str, sizes: tuple[int, int, int, int], opset: int
) -> onnx.FunctionProto:
    batch, boxes, classes, capacity = sizes
    count = min(capacity, boxes * classes)
    agnostic = bool(_number(node, "class_agnostic", 0)) and classes > 1
    background = int(_number(node, "background_class", -1))
    hidden = ", ".join(str(int(k == background)) for k in range(classes))
    starts = ", ".join(str(k * boxes) for k in range(batch))
    halves = "half = Mul (second, point5)\nlow = Sub (first, half)\nhigh = Add (first, half)"
    corners = "low = Identity (first)\nhigh = Identity (second)"
    one_class = "read = Reshape (wanted, flat)"
    # Only forms that are the same in all opsets from 11 on: ONNX Runtime reads them in the model's.
    text = f"""<domain: "{DOMAIN}", opset_import: ["" : {opset}]> {name} (boxes, scores)
        => (num, out_boxes, out_scores, out_classes) {{
        point5 = Constant <value = float {{0.5}}> ()
        none = Constant <value = float {{-1e30}}> ()
        zero = Constant <value = float {{0}}> ()
        zero_int = Constant <value = int64[1] {{0}}> ()
        one_int = Constant <value = int64[1] {{1}}> ()
        two = Constant <value = int64[1] {{2}}> ()
        four = Constant <value = int64[1] {{4}}> ()
        limit = Constant <value = int64[1] {{{count}}}> ()
        iou = Constant <value = float[1] {{{_number(node, "iou_threshold", 0.5)!r}}}> ()
        least = Constant <value = float[1] {{{_number(node, "score_threshold", 0.25)!r}}}> ()
        active = {"Sigmoid" if _number(node, "score_activation", 0) else "Identity"} (scores)
        by_class = Transpose <perm = [0, 2, 1]> (active)
        is_background = Constant <value = bool[{classes}, 1] {{{hidden}}}> ()
        wanted = Where (is_background, none, by_class)
        first = Slice (boxes, zero_int, two, two)
        second = Slice (boxes, two, four, two)
        {halves if _number(node, "box_coding", 0) else corners}
        cornered = Concat <axis = 2> (low, high)
        flat = Constant <value = int64[3] {{{batch}, 1, {boxes * classes}}}> ()
        times = Constant <value = int64[3] {{1, {classes if agnostic else 1}, 1}}> ()
        candidates = Tile (cornered, times)
        {one_class if agnostic else "read = Identity (wanted)"}
        chosen = NonMaxSuppression (candidates, read, limit, iou, least)
        read_shape = Shape (read)
        blank = ConstantOfShape <value = float[1] {{0}}> (read_shape)
        chosen_shape = Shape (chosen)
        rows = Slice (chosen_shape, zero_int, one_int)
        ones = ConstantOfShape <value = float[1] {{1}}> (rows)
        marks = ScatterND (blank, chosen, ones)
        is_chosen = Greater (marks, zero)
        best = Where (is_chosen, read, none)
        whole = Constant <value = int64[2] {{{batch}, {boxes * classes}}}> ()
        row = Reshape (best, whole)
        top, index = TopK <axis = 1> (row, limit)
        valid = Greater (top, none)
        valid_float = Cast <to = 1> (valid)
        all_ones = Constant <value = float[{count}, 1] {{{", ".join(["1"] * count)}}}> ()
        num_float = MatMul (valid_float, all_ones)
        num = Cast <to = 6> (num_float)
        scores_short = Where (valid, top, zero)
        number = Constant <value = int64 {{{boxes}}}> ()
        kind = Div (index, number)
        kind_int = Cast <to = 6> (kind)
        valid_int = Cast <to = 6> (valid)
        classes_short = Mul (kind_int, valid_int)
        which = Mod (index, number)
        starts = Constant <value = int64[{batch}, 1] {{{starts}}}> ()
        places = Add (which, starts)
        listed = Constant <value = int64[2] {{-1, 4}}> ()
        every_box = Reshape (cornered, listed)
        boxes_read = Gather <axis = 0> (every_box, places)
        column = Constant <value = int64[3] {{{batch}, {count}, 1}}> ()
        valid_column = Reshape (valid_float, column)
        boxes_short = Mul (boxes_read, valid_column)
        pads2 = Constant <value = int64[4] {{0, 0, 0, {capacity - count}}}> ()
        pads3 = Constant <value = int64[6] {{0, 0, 0, 0, {capacity - count}, 0}}> ()
        out_scores = Pad (scores_short, pads2)
        out_classes = Pad (classes_short, pads2)
        out_boxes = Pad (boxes_short, pads3)
    }}"""
    function: onnx.FunctionProto = onnx.parser.parse_function(text)
    return function
