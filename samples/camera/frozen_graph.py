"""TensorFlow's frozen graph of an SSD with MobileNet, as ONNX: the network itself, without what frames it.

Knows the operators of such a detector and no others. Resizing before the network and the boxes' decoding
after it are cut off: EdgeKit's card says both. No TensorFlow is needed: a frozen graph is a protobuf, read
here by its wire format (https://protobuf.dev/programming-guides/encoding/; field numbers of tensorflow's
graph.proto, node_def.proto, attr_value.proto and tensor.proto).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSET = 17
INPUT = "Preprocessor/sub"
"""Pixels from -1 to 1, NHWC: where the network begins."""
OUTPUTS = {"boxes": ("concat", 4), "scores": ("concat_1", 2)}
"""Ours -> the node that joins the layers' predictions, and their columns: box; background and person."""
FLOAT = 1


@dataclass(frozen=True)
class Node:
    """One of the graph; attributes are raw AttrValue messages."""

    name: str
    op: str
    inputs: tuple[str, ...]
    attributes: Mapping[str, bytes]


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of each field: an int, or the bytes of a string, a message or a fixed number."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        number, kind = divmod(varint(), 8)
        if kind == 0:
            yield number, varint()
            continue
        size = varint() if kind == 2 else {1: 8, 5: 4}[kind]
        yield number, message[at : at + size]
        at += size


def read_nodes(path: Path) -> dict[str, Node]:
    """The nodes of a frozen graph by name."""
    nodes = {}
    for number, content in fields(path.read_bytes()):
        if number == 1:
            parts: dict[int, list[Any]] = {n: [] for n in range(1, 6)}
            for part, value in fields(content):
                parts.setdefault(part, []).append(value)
            pairs = [dict(fields(pair)) for pair in parts[5]]
            attributes = {pair[1].decode(): pair[2] for pair in pairs}
            inputs = tuple(each.decode() for each in parts[3])
            node = Node(parts[1][0].decode(), parts[2][0].decode(), inputs, attributes)
            nodes[node.name] = node
    return nodes


def constant(node: Node) -> Any:
    """The float32 array of a Const."""
    tensor: dict[int, Any] = dict(fields(dict(fields(node.attributes["value"]))[8]))
    assert tensor[1] == FLOAT, node.name
    sizes = [dict(fields(size)).get(1, 0) for number, size in fields(tensor[2]) if number == 2]
    return np.frombuffer(tensor[4], np.float32).reshape(sizes)


def convert(path: Path, side: int) -> onnx.ModelProto:
    """The network as ONNX: ``image`` float32 [1, 3, side, side], RGB from -1 to 1, to ``boxes`` [1, n, 4] and
    ``scores`` [1, n, 2], as EdgeKit's decoder ``ssd-anchors`` takes them.

    Raises:
        ValueError: the graph has an operator that is none of such a detector.
    """
    return _Conversion(read_nodes(path)).model(side)


class _Conversion:
    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self._nodes = nodes
        self._made: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}
        self._done = {INPUT: "image"}

    def model(self, side: int) -> onnx.ModelProto:
        for ours, (joint, columns) in OUTPUTS.items():
            parts = [self._rows(name, columns) for name in self._nodes[joint].inputs[:-1]]
            self._made.append(helper.make_node("Concat", parts, [ours], axis=1))
        shapes = {name: [1, None, columns] for name, (_, columns) in OUTPUTS.items()}
        graph = helper.make_graph(
            self._made,
            "ssd",
            [helper.make_tensor_value_info("image", FLOAT, [1, 3, side, side])],
            [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in shapes.items()],
            list(self._constants.values()),
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
        return onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)

    def _rows(self, reshape: str, columns: int) -> str:
        """A layer's predictions: a row for each anchor."""
        taken = self._value(self._nodes[reshape].inputs[0])
        last = self._add("Transpose", [taken], f"{reshape}/last", perm=[0, 2, 3, 1])
        shape = self._constant(f"{reshape}/shape", np.array([1, -1, columns], np.int64))
        return self._add("Reshape", [last, shape], reshape)

    def _value(self, name: str) -> str:
        """The name in our graph of what a node gives, NCHW; made where it is not there yet."""
        if name in self._done:
            return self._done[name]
        node = self._nodes[name]
        data = self._value(node.inputs[0])
        if node.op == "Identity":
            made = data
        elif node.op in ("Conv2D", "DepthwiseConv2dNative"):
            made = self._convolved(node, data)
        elif node.op == "FusedBatchNorm":
            four = [self._weights(each) for each in node.inputs[1:]]
            epsilon = struct.unpack("<f", dict(fields(node.attributes["epsilon"]))[4])[0]
            made = self._add("BatchNormalization", [data, *four], name, epsilon=epsilon)
        elif node.op == "Relu6":
            limits = [self._constant(f"of relu6/{n}", np.float32(n)) for n in (0, 6)]
            made = self._add("Clip", [data, *limits], name)
        elif node.op == "BiasAdd":
            bias = self._constant(f"{name}/b", self._array(node.inputs[1]).reshape(1, -1, 1, 1))
            made = self._add("Add", [data, bias], name)
        elif node.op == "Add":
            made = self._add("Add", [data, self._value(node.inputs[1])], name)
        else:
            raise ValueError(f"{name} is a {node.op}, which this conversion does not know")
        self._done[name] = made
        return made

    def _convolved(self, node: Node, data: str) -> str:
        weights, depthwise = self._array(node.inputs[1]), node.op != "Conv2D"
        # Conv2D: height, width, in, out; depthwise: height, width, in, multiplier (1).
        turned = weights.transpose((2, 3, 0, 1) if depthwise else (3, 2, 0, 1))
        packed = dict(fields(dict(fields(node.attributes["strides"]))[1]))[3]
        assert dict(fields(node.attributes["padding"]))[2] == b"SAME", node.name
        return self._add(
            "Conv",
            [data, self._constant(f"{node.name}/w", turned)],
            node.name,
            auto_pad="SAME_UPPER",
            strides=list(packed[1:3]),
            group=len(turned) if depthwise else 1,
        )

    def _array(self, name: str) -> Any:
        node = self._nodes[name]
        return constant(node) if node.op == "Const" else self._array(node.inputs[0])

    def _weights(self, name: str) -> str:
        return self._constant(name, self._array(name))

    def _constant(self, name: str, value: Any) -> str:
        self._constants[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def _add(self, op: str, inputs: list[str], name: str, **attributes: Any) -> str:
        self._made.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name
