"""TensorFlow's frozen graph of an SSD with MobileNet, as ONNX: the network itself, without what frames it.

Knows the operators of such a detector and no others. Resizing before the network and the boxes' decoding
after it are cut off: EdgeKit's card says both. No TensorFlow is needed: a frozen graph is a protobuf, read
here by its wire format (https://protobuf.dev/programming-guides/encoding/; field numbers of tensorflow's
graph.proto, node_def.proto, attr_value.proto and tensor.proto).
"""

from __future__ import annotations

import math
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
OPERATORS = {"Identity": 1, "Relu6": 1, "Add": 2, "BiasAdd": 2, "FusedBatchNorm": 5}
OPERATORS |= {"Conv2D": 2, "DepthwiseConv2dNative": 2}
"""Those of such a detector, and how many inputs each has at least."""
MOST_DEEP = 300
"""Nodes between an output and the input; MobileNet v2 has 150."""
FLOAT = 1


@dataclass(frozen=True)
class Node:
    """One of the graph; attributes are raw AttrValue messages."""

    name: str
    op: str
    inputs: tuple[str, ...]
    attributes: Mapping[str, bytes]


class GraphError(ValueError):
    """The file is no frozen graph of such a detector; the text says where and why."""


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of each field: an int, or the bytes of a string, a message or a fixed number.

    Raises:
        GraphError: the bytes are no protobuf message.
    """
    at = 0

    def varint() -> int:
        nonlocal at
        value = 0
        for shift in range(0, 70, 7):
            if at == len(message):
                raise GraphError("a protobuf message ends within a number")
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise GraphError("a number of a protobuf message has more than 10 bytes")

    while at < len(message):
        number, kind = divmod(varint(), 8)
        if kind == 0:
            yield number, varint()
            continue
        if kind not in (1, 2, 5):
            raise GraphError(f"protobuf has no wire type {kind} that this reads")
        size = varint() if kind == 2 else {1: 8, 5: 4}[kind]
        if size > len(message) - at:
            raise GraphError(f"a field of {size} bytes has {len(message) - at}")
        yield number, message[at : at + size]
        at += size


def part(message: bytes, number: int) -> bytes:
    """The bytes of a field; empty where there is none. The last one counts.

    Raises:
        GraphError: it is a number, or the message is none.
    """
    found = [value for each, value in fields(message) if each == number]
    if found and not isinstance(found[-1], bytes):
        raise GraphError(f"field {number} of a protobuf message is a number")
    return found[-1] if found else b""


def integer(message: bytes, number: int) -> int:
    """The integer of a field; 0 where there is none, as protobuf has it.

    Raises:
        GraphError: it is no integer, or the message is none.
    """
    found = [value for each, value in fields(message) if each == number]
    if found and not isinstance(found[-1], int):
        raise GraphError(f"field {number} of a protobuf message is no integer")
    return found[-1] if found else 0


def read_nodes(path: Path) -> dict[str, Node]:
    """The nodes of a frozen graph by name.

    Raises:
        GraphError: the file is no frozen graph.
    """
    nodes: dict[str, Node] = {}
    for number, content in fields(path.read_bytes()):
        if number != 1:
            continue
        if not isinstance(content, bytes):
            raise GraphError("a node of the graph is a number")
        known = list(fields(content))
        inputs = tuple(_text(value) for each, value in known if each == 3)
        pairs = [value for each, value in known if each == 5 and isinstance(value, bytes)]
        attributes = {_text(part(pair, 1)): part(pair, 2) for pair in pairs}
        node = Node(_text(part(content, 1)), _text(part(content, 2)), inputs, attributes)
        if node.name in nodes:
            raise GraphError(f"two nodes are called {node.name!r}")
        nodes[node.name] = node
    if not nodes:
        raise GraphError("there is no node in it")
    return nodes


def constant(node: Node) -> Any:
    """The float32 array of a Const.

    Raises:
        GraphError: it is none, or its bytes are not as many as its shape says.
    """
    tensor = part(node.attributes.get("value", b""), 8)
    if integer(tensor, 1) != FLOAT:
        raise GraphError(f"{node.name} is no float32")
    sizes = [integer(size, 1) for each, size in fields(part(tensor, 2)) if each == 2]
    content = part(tensor, 4)
    if len(content) != 4 * math.prod(sizes) or not content:
        raise GraphError(f"{node.name} has {len(content)} bytes for float32 {sizes}")
    return np.frombuffer(content, "<f4").reshape(sizes)


def _text(value: Any) -> str:
    try:
        return str(value, "utf-8")
    except (TypeError, UnicodeDecodeError):
        raise GraphError("a name in the graph is not UTF-8 text") from None


def convert(path: Path, side: int) -> onnx.ModelProto:
    """The network as ONNX: ``image`` float32 [1, 3, side, side], RGB from -1 to 1, to ``boxes`` [1, n, 4] and
    ``scores`` [1, n, 2], as EdgeKit's decoder ``ssd-anchors`` takes them.

    Raises:
        GraphError: the file is no frozen graph, or it has an operator that is none of such a detector.
    """
    return _Conversion(read_nodes(path)).model(side)


class _Conversion:
    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self._nodes = nodes
        self._made: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}
        self._done = {INPUT: "image"}
        self._open: list[str] = []

    def model(self, side: int) -> onnx.ModelProto:
        for ours, (joint, columns) in OUTPUTS.items():
            parts = [self._rows(name, columns) for name in self._node(joint).inputs[:-1]]
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
        try:
            return onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        except onnx.shape_inference.InferenceError as problem:
            raise GraphError(f"its shapes do not fit: {str(problem).splitlines()[0]}") from None

    def _node(self, name: str, inputs: int = 0) -> Node:
        """A node that has at least so many inputs."""
        if name not in self._nodes:
            raise GraphError(f"there is no node {name!r}")
        node = self._nodes[name]
        if len(node.inputs) < inputs:
            raise GraphError(f"{name}, a {node.op}, has {len(node.inputs)} inputs; it needs {inputs}")
        return node

    def _rows(self, reshape: str, columns: int) -> str:
        """A layer's predictions: a row for each anchor."""
        taken = self._value(self._node(reshape, 1).inputs[0])
        last = self._add("Transpose", [taken], f"{reshape}/last", perm=[0, 2, 3, 1])
        shape = self._constant(f"{reshape}/shape", np.array([1, -1, columns], np.int64))
        return self._add("Reshape", [last, shape], reshape)

    def _value(self, name: str) -> str:
        """The name in our graph of what a node gives, NCHW; made where it is not there yet."""
        if name in self._done:
            return self._done[name]
        if name in self._open or len(self._open) == MOST_DEEP:
            why = "is an input of itself" if name in self._open else f"is more than {MOST_DEEP} nodes deep"
            raise GraphError(f"{name} {why}")
        self._open.append(name)
        self._done[name] = self._made_of(self._node(name, 1))
        self._open.pop()
        return self._done[name]

    def _made_of(self, node: Node) -> str:
        name = node.name
        if node.op not in OPERATORS:
            raise GraphError(f"{name} is a {node.op}, which this conversion does not know")
        self._node(name, OPERATORS[node.op])
        data = self._value(node.inputs[0])
        if node.op == "Identity":
            return data
        if node.op in ("Conv2D", "DepthwiseConv2dNative"):
            return self._convolved(node, data)
        if node.op == "FusedBatchNorm":
            four = [self._constant(each, self._array(each)) for each in node.inputs[1:5]]
            packed = dict(fields(node.attributes.get("epsilon", b""))).get(4)
            if not isinstance(packed, bytes) or len(packed) != 4:
                raise GraphError(f"{name} has no epsilon")
            epsilon = struct.unpack("<f", packed)[0]
            return self._add("BatchNormalization", [data, *four], name, epsilon=epsilon)
        if node.op == "Relu6":
            limits = [self._constant(f"of relu6/{n}", np.float32(n)) for n in (0, 6)]
            return self._add("Clip", [data, *limits], name)
        if node.op == "BiasAdd":
            bias = self._constant(f"{name}/b", self._array(node.inputs[1]).reshape(1, -1, 1, 1))
            return self._add("Add", [data, bias], name)
        return self._add("Add", [data, self._value(node.inputs[1])], name)

    def _convolved(self, node: Node, data: str) -> str:
        weights, depthwise = self._array(node.inputs[1]), node.op != "Conv2D"
        if weights.ndim != 4 or (depthwise and weights.shape[3] != 1):
            raise GraphError(f"{node.name}, a {node.op}, has weights of shape {list(weights.shape)}")
        # Conv2D: height, width, in, out; depthwise: height, width, in, multiplier (1).
        turned = weights.transpose((2, 3, 0, 1) if depthwise else (3, 2, 0, 1))
        strides = part(part(node.attributes.get("strides", b""), 1), 3)
        if len(strides) != 4 or not all(1 <= stride < 128 for stride in strides):
            raise GraphError(f"{node.name} has no four strides of 1 to 127")
        if part(node.attributes.get("padding", b""), 2) != b"SAME":
            raise GraphError(f"{node.name} has a padding other than SAME")
        return self._add(
            "Conv",
            [data, self._constant(f"{node.name}/w", turned)],
            node.name,
            auto_pad="SAME_UPPER",
            strides=list(strides[1:3]),
            group=len(turned) if depthwise else 1,
        )

    def _array(self, name: str) -> Any:
        """The values of a Const, behind any number of Identity."""
        node, passed = self._node(name), {name}
        while node.op == "Identity":
            node = self._node(self._node(node.name, 1).inputs[0])
            if node.name in passed:
                raise GraphError(f"{name} is an input of itself")
            passed.add(node.name)
        if node.op != "Const":
            raise GraphError(f"{name} is a {node.op}; only a Const can be weights")
        return constant(node)

    def _constant(self, name: str, value: Any) -> str:
        self._constants[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def _add(self, op: str, inputs: list[str], name: str, **attributes: Any) -> str:
        self._made.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name
