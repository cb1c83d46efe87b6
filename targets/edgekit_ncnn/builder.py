"""Builder for lowerings: values in the blobs that store them, and layers.

A blob has one to four axes, and its elements are in the order of the ONNX value's. A blob of any shape with
as many elements can therefore store a value: ``[3,8,8]`` stores ``[1,3,8,8]``, ``[6,4,30]`` stores
``[2,3,4,5,6]``. A lowering asks for the shape that its layer needs (``blob``), and a Reshape is emitted if
the value has another one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import onnx_ir as ir

from edgekit.compiler.lowering.op_table import LoweredNode, OpTable
from edgekit.compiler.model.node_checks import static_dims
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array
from edgekit_ncnn.network import Layer, Param

Shape = tuple[int, ...]

AXES_LIMIT = 4
"""Axes of a blob."""
NAME = re.compile(r"[\w./:-]{1,200}")
"""ONNX names that are kept for blobs: a .param file separates words by spaces."""
HELD = {ir.DataType.FLOAT: "float32", ir.DataType.UINT8: "uint8", ir.DataType.INT8: "int8"}
"""Element types that blobs of float32 hold exactly."""
MOVES = frozenset(
    ("Cast", "Concat", "DequantizeLinear", "DepthToSpace", "Expand", "Flatten", "Gather", "Identity",
     "MaxPool", "Pad", "QuantizeLinear", "Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile",
     "Transpose", "Unsqueeze")
)  # fmt: skip
"""Ops whose lowerings are exact for integers that are held as floats."""


@dataclass(frozen=True)
class Pair:
    """Scale of symmetric int8 values, and the value before they were rounded."""

    scale: Array
    source: Value


@dataclass(frozen=True)
class Value:
    """A value.

    Attributes:
        dtype: Its ONNX element type, as numpy names it.
        name: Name of its blob; empty for a constant.
        stored: Shape of its blob, the outermost axis first.
        pair: Set for what a pair of QuantizeLinear and DequantizeLinear made.
    """

    shape: Shape
    dtype: str
    name: str = ""
    stored: Shape = ()
    const: Array | None = None
    pair: Pair | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)


def natural(shape: Shape) -> Shape:
    """Return the shape in which a value of an ONNX shape is best stored: without its batch of one.

    >>> natural((1, 3, 8, 8)), natural((2, 5)), natural(()), natural((2, 3, 4, 5, 6))
    ((3, 8, 8), (2, 5), (1,), (6, 4, 5, 6))
    """
    if len(shape) > 1 and shape[0] == 1:
        shape = shape[1:]
    spare = len(shape) - AXES_LIMIT
    return (prod(shape[: spare + 1]), *shape[spare + 1 :]) if spare > 0 else shape or (1,)


class Builder(LoweredNode):
    """Builder of one network."""

    def __init__(self) -> None:
        self.layers: list[Layer] = []
        self._values: dict[ir.Value, Value] = {}
        self._writers: dict[str, Layer] = {}
        self._constants: dict[tuple[int, Shape], str] = {}
        self._kept: list[Array] = []
        self._reshaped: dict[tuple[str, Shape], str] = {}
        self._names: set[str] = set()

    # The four methods that OpTable.lower calls

    def begin(self, node: ir.Node) -> None:
        self.node = node
        for value in (*node.inputs, *node.outputs):
            if value is not None and value.name and (value.const_value is None or value.is_graph_output()):
                self._problem = unheld(value, node.op_type in MOVES)
                if self._problem is not None:
                    return
        self._problem = None

    def handle(self, value: ir.Value) -> Value:
        if self._problem is not None:
            raise self._problem
        if value not in self._values:
            if value.const_value is None:
                raise ValueError(f"{value.name} is used before it is made")
            array = value.const_value.numpy()
            self._values[value] = Value(array.shape, array.dtype.name, const=array)
        return self._values[value]

    def bind(self, value: ir.Value, handle: Value) -> None:
        shape = static_dims(value)
        if shape is None or prod(shape) != handle.size:
            raise Inexpressible(f"{value.name} is declared as {shape}, but the layer returns {handle.shape}")
        assert value.dtype is not None
        self._values[value] = replace(handle, shape=shape, dtype=HELD[value.dtype])

    def bind_unknown(self, value: ir.Value) -> None:
        shape = static_dims(value) or (1,)
        self._values[value] = Value(shape, "float32", self.fresh(), natural(shape))

    # Values and layers

    def input(self, value: ir.Value) -> Value:
        """Emit the network's input for a graph input."""
        shape = static_dims(value) or ()
        stored, name = natural(shape), self.fresh(str(value.name))
        self._add(Layer("Input", [], [name], _axes(stored)))
        assert value.dtype is not None
        self._values[value] = result = Value(shape, HELD.get(value.dtype, "float32"), name, stored)
        return result

    def output(self, value: ir.Value) -> Value:
        """Emit a blob of its own for a graph output, with its name."""
        handle = self._values.get(value)
        handle = self.handle(value) if handle is None else handle
        return self.emit("Noop", [self.blob(handle, natural(handle.shape))], natural(handle.shape),
                         name=str(value.name))  # fmt: skip

    def fresh(self, name: str = "") -> str:
        """Return an unused name of a blob: this one if it can be kept."""
        if not name or name in self._names or not NAME.fullmatch(name):
            name = f"b{len(self._names)}"
            while name in self._names:
                name += "_"
        self._names.add(name)
        return name

    def blob(self, value: Value, stored: Shape) -> str:
        """Return the name of a blob that has a value in this shape."""
        if value.const is not None:
            return self._constant_blob(value.const, stored)
        if value.stored == stored:
            return value.name
        key = (value.name, stored)
        if key not in self._reshaped:
            params = _axes(stored)
            reshaped = self.emit("Reshape", [value.name], stored, params)
            self._reshaped[key] = reshaped.name
        return self._reshaped[key]

    def _constant_blob(self, array: Array, stored: Shape) -> str:
        key = (id(array), stored)
        if key not in self._constants:
            self._kept.append(array)
            params = _axes(stored)
            data = np.asarray(array, np.float32)
            self._constants[key] = self.emit("MemoryData", [], stored, params, [data]).name
        return self._constants[key]

    def emit(
        self,
        kind: str,
        inputs: Sequence[str],
        stored: Shape,
        params: Mapping[int, Param] | None = None,
        weights: Sequence[Array] = (),
        typed: bool = False,
        name: str = "",
    ) -> Value:
        """Add a layer with one output, and return it as a value whose ONNX shape is that of its blob."""
        output = self.fresh(name)
        self._add(Layer(kind, list(inputs), [output], dict(params or {}), list(weights), typed))
        return Value(stored, "float32", output, stored)

    def emit_slices(self, source: str, stored: Sequence[Shape], params: Mapping[int, Param]) -> list[Value]:
        """Add a Slice, the layer with several outputs."""
        names = [self.fresh() for _ in stored]
        self._add(Layer("Slice", [source], names, dict(params)))
        return [Value(shape, "float32", name, shape) for shape, name in zip(stored, names, strict=True)]

    def _add(self, layer: Layer) -> None:
        self.layers.append(layer)
        self._writers.update(dict.fromkeys(layer.outputs, layer))

    def constant(self, array: Array) -> Value:
        """Return a constant of float32."""
        return Value(array.shape, "float32", const=np.asarray(array, np.float32))

    def writer(self, value: Value) -> Layer | None:
        """Return the layer that writes a value's blob."""
        return self._writers.get(value.name)

    def is_only_reader(self) -> bool:
        """Return whether the node being lowered alone reads its first input, which is not an output."""
        assert self.node is not None
        value = self.node.inputs[0]
        return value is not None and len(list(value.uses())) == 1 and not value.is_graph_output()

    def reshape(self, value: Value, shape: Shape) -> Value:
        """Return the same elements in another ONNX shape; no layer is emitted."""
        if value.const is not None:
            return replace(value, shape=shape, const=value.const.reshape(shape), pair=None)
        return replace(value, shape=shape, pair=None)


def _axes(stored: Shape) -> dict[int, Param]:
    keys = (0, 1, 11, 2) if len(stored) == AXES_LIMIT else (0, 1, 2)
    return dict(zip(keys, stored[::-1], strict=False))


def unheld(value: ir.Value, bytes_too: bool = True) -> Inexpressible | None:
    """Return why a value can't be in a blob, or None."""
    shape = static_dims(value)
    if shape is None:
        return Inexpressible(f"the shape of {value.name} is not static", "give --shape", "EK1003")
    if 0 in shape:
        return Inexpressible(f"{value.name} has no element, and ncnn has no empty blobs")
    kind = "of unknown type" if value.dtype is None else value.dtype.numpy().name
    if value.dtype not in HELD or (value.dtype != ir.DataType.FLOAT and not bytes_too):
        return Inexpressible(f"{value.name} is {kind}; ncnn computes float32", code="EK1004")
    return None


lower: OpTable[Value] = OpTable("ncnn")
