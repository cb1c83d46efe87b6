"""What lowerings build with: values in symbolic layouts, conversions on demand, operators.

Each ONNX value becomes a ``Value``: a tensor and the permutation by which it is stored (layout.py). A
lowering states the layout it needs (``b.to(x, channels_last(4))``) and a TRANSPOSE is emitted only when the
value isn't stored so already; conversions are cached. Constants are permuted here, at compile time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir

from edgekit.lowering import Inexpressible, OpTable, node_name
from edgekit.target import Array
from edgekit_tflite import layout
from edgekit_tflite.graph import Graph, Op, Quantization, Tensor
from edgekit_tflite.kernel_types import DATA_OPERAND, KERNEL_TYPES
from edgekit_tflite.layout import Perm, Shape, channels_last, identity

STORED: dict[ir.DataType, str] = {
    ir.DataType.FLOAT: "float32",
    ir.DataType.INT64: "int32",
    ir.DataType.INT32: "int32",
    ir.DataType.INT16: "int16",
    ir.DataType.INT8: "int8",
    ir.DataType.UINT8: "uint8",
    ir.DataType.BOOL: "bool",
}
"""ONNX element type -> what stands for it in the .tflite file. TFLite's kernels index and count in int32."""

CHANNELS_LAST_OPS = frozenset(
    {"AveragePool", "Conv", "ConvTranspose", "DepthToSpace", "LRN", "MaxPool", "Resize", "SpaceToDepth"}
)
FOLLOWING_OPS = frozenset(
    {
        "Add", "BatchNormalization", "Clip", "Concat", "Div", "Elu", "Gelu", "HardSigmoid", "HardSwish",
        "LeakyRelu", "Max", "Min", "Mul", "PRelu", "Pad", "Relu", "Sigmoid", "Sub", "Sum", "Tanh",
    }
)  # fmt: skip
"""Ops that take any layout, so that what they feed decides."""

FP16_SMALLEST_SIZE = 64
"""Constants with fewer elements stay float32: a DEQUANTIZE costs more bytes than it saves."""


SHARED_UP_TO_BYTES = 4096
"""Equal constants up to this size are stored once."""


@dataclass(frozen=True)
class View:
    """A value that is ``source[begin : : step]`` along each logical axis (the end follows from its shape)."""

    source: Value
    begin: tuple[int, ...]
    step: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Value:
    """What stands for an ONNX value.

    Attributes:
        shape: Logical shape, as ONNX has it.
        dtype: Stored element type, a numpy name.
        perm: stored = logical.transpose(perm).
        tensor: Index in the graph; -1 for a constant, which is placed when it is used.
        const: The logical array of a constant.
        quantization: For stored integers that stand for reals.
        view: The slice it is, when it is one.
    """

    shape: Shape
    dtype: str
    perm: Perm
    tensor: int = -1
    const: Array | None = None
    quantization: Quantization | None = None
    view: View | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return self.size * np.dtype(self.dtype).itemsize


Operand = Value | int | None
"""A value in the layout it has, the index of a tensor, or an optional input left out."""


class Builder:
    """Makes one graph out of one model; lives for one compilation."""

    def __init__(self, precision: str) -> None:
        self.graph = Graph()
        self.precision = precision
        self.node: ir.Node | None = None
        self._values: dict[ir.Value, Value] = {}
        self._bound: dict[int, list[ir.Value]] = {}
        self._moved: dict[tuple[int, Perm], int] = {}
        self._reshaped: dict[tuple[int, Shape], int] = {}
        self._placed: dict[tuple[int, Perm, str], tuple[int, Array]] = {}
        self._small: dict[tuple[bytes, Shape, str], int] = {}

    # The four methods that OpTable.lower calls

    def begin(self, node: ir.Node) -> None:
        self.node = node

    def handle(self, value: ir.Value) -> Value:
        if value not in self._values:
            if value.const_value is None:
                raise ValueError(f"{value.name} is used before it is made")
            self._values[value] = self.constant(value.const_value.numpy(), stored_dtype(value))
        return self._values[value]

    def bind(self, value: ir.Value, handle: Value) -> None:
        stored_dtype(value)
        declared = static_shape(value)
        if declared is not None and declared != handle.shape:
            raise Inexpressible(f"{value.name} is declared as {declared}, and the node gives {handle.shape}")
        self._values[value] = handle
        if handle.tensor >= 0:
            tensor = self.graph.tensors[handle.tensor]
            if handle.tensor not in self._bound and tensor.data is None:
                tensor.name = str(value.name)
            self._bound.setdefault(handle.tensor, []).append(value)

    def bind_unknown(self, value: ir.Value) -> None:
        dtype = STORED.get(value.dtype, "float32") if value.dtype is not None else "float32"
        shape = static_shape(value) or ()
        self._values[value] = self.new(shape, dtype)

    # Inputs and outputs of the graph

    def add_input(self, value: ir.Value) -> int:
        """Declare a graph input, stored in the source's own order of axes."""
        shape = static_shape(value)
        assert shape is not None
        made = self.new(shape, stored_dtype(value))
        self.graph.tensors[made.tensor].name = str(value.name)
        self.graph.inputs.append(made.tensor)
        self._values[value] = made
        self._bound[made.tensor] = [value]
        return made.tensor

    def add_output(self, value: ir.Value) -> int:
        """Declare a graph output, stored in the source's own order of axes, in a tensor of its own."""
        self.node = value.producer()
        logical = self.handle(value)
        stored = self.to(
            logical, identity(logical.rank), why=f"output {value.name} keeps the source's layout"
        )
        tensor = self.tensor(stored)
        taken = tensor in self.graph.outputs or tensor in self.graph.inputs or stored.const is not None
        if taken:
            tensor = self.copy(replace(stored, tensor=tensor)).tensor
        self.graph.tensors[tensor].name = str(value.name)
        self.graph.outputs.append(tensor)
        return tensor

    # What the node being lowered declares

    @property
    def name(self) -> str:
        return node_name(self.node) if self.node is not None else ""

    def out_shape(self, index: int = 0) -> Shape:
        """Static shape of an output of the node being lowered."""
        assert self.node is not None
        shape = static_shape(self.node.outputs[index])
        if shape is None:
            raise Inexpressible("the shape of its output is not static", "give --shape", "EK1003")
        return shape

    def out_dtype(self, index: int = 0) -> str:
        """Stored element type of an output of the node being lowered."""
        assert self.node is not None
        return stored_dtype(self.node.outputs[index])

    def wants_output(self, index: int) -> bool:
        """Whether anything reads an output of the node being lowered."""
        assert self.node is not None
        if index >= len(self.node.outputs):
            return False
        output = self.node.outputs[index]
        return bool(output.uses()) or output.is_graph_output()

    # Making values

    def new(
        self, shape: Shape, dtype: str, perm: Perm | None = None, quantization: Quantization | None = None
    ) -> Value:
        """A value of its own, to be some operator's output."""
        perm = identity(len(shape)) if perm is None else perm
        made = Tensor(self.name, layout.physical(shape, perm), dtype, quantization=quantization)
        return Value(shape, dtype, perm, self.graph.add_tensor(made), quantization=quantization)

    def like(self, x: Value, dtype: str | None = None) -> Value:
        """A value of its own with the shape, layout and, for the same dtype, quantization of ``x``."""
        quantization = x.quantization if dtype is None else None
        return self.new(x.shape, dtype or x.dtype, x.perm, quantization)

    def constant(self, array: Any, dtype: str | None = None) -> Value:
        """A constant; nothing is stored until an operator uses it."""
        array = np.asarray(array)
        dtype = dtype or {"int64": "int32", "float64": "float32"}.get(array.dtype.name, array.dtype.name)
        return Value(array.shape, dtype, identity(array.ndim), const=array)

    def constant_like(self, array: Array, x: Value) -> Value:
        """A constant with the element type and quantization of ``x``; ``array`` holds stored numbers."""
        return replace(self.constant(array, x.dtype), quantization=x.quantization)

    def ints(self, values: Sequence[int]) -> int:
        """The tensor of a constant int32 vector."""
        return self._place(np.array(values, np.int32))

    def scalar(self, value: float, dtype: str = "float32") -> Value:
        """A constant of one element."""
        return self.constant(np.array([value], np.dtype(dtype)))

    def weights(self, array: Array) -> int:
        """The tensor of weights in physical order, stored in the precision that was asked for.

        float16 weights are a constant and a DEQUANTIZE, which XNNPACK folds when it packs them.
        """
        array = np.ascontiguousarray(array, np.float32)
        if self.precision != "fp16" or array.size < FP16_SMALLEST_SIZE:
            return self._place(array)
        with np.errstate(over="ignore"):
            half = array.astype(np.float16)
        if not np.isfinite(half).all():
            return self._place(array)
        full = self.new(array.shape, "float32")
        self.emit("DEQUANTIZE", [self._place(half)], full)
        return full.tensor

    def tensor(self, x: Value) -> int:
        """The tensor of ``x`` in the layout it has; a constant is placed."""
        if x.tensor >= 0:
            return x.tensor
        assert x.const is not None
        key = (id(x.const), x.perm, x.dtype)
        if key not in self._placed:
            stored = narrowed(x.const, x.dtype).transpose(x.perm)
            self._placed[key] = (self._place(stored, x.quantization), x.const)
        return self._placed[key][0]

    def _place(self, stored: Array, quantization: Quantization | None = None) -> int:
        stored = np.ascontiguousarray(stored).reshape(stored.shape)
        small = stored.nbytes <= SHARED_UP_TO_BYTES
        key = (stored.tobytes() if small else b"", stored.shape, f"{stored.dtype.name} {quantization}")
        if small and key in self._small:
            return self._small[key]
        name = f"{self.name}/constant"
        made = Tensor(name, stored.shape, stored.dtype.name, data=stored, quantization=quantization)
        index = self.graph.add_tensor(made)
        if small:
            self._small[key] = index
        return index

    # Layout

    def to(self, x: Value, perm: Perm, why: str = "") -> Value:
        """``x`` stored by ``perm``; ``why`` is what the report says when that takes a TRANSPOSE."""
        if x.perm == perm:
            return x
        if x.const is not None:
            return replace(x, perm=perm)
        order = tuple(x.perm.index(axis) for axis in perm)
        key = (x.tensor, order)
        if key not in self._moved:
            if layout.same_order(x.shape, x.perm, perm):
                stored = layout.physical(x.shape, perm)
                self._moved[key] = self._reshape_tensor(x.tensor, stored, x.dtype, x.quantization)
            else:
                moved = self.new(x.shape, x.dtype, perm, x.quantization)
                why = why or f"{self.node.op_type if self.node else ''} takes its data {words(perm)}"
                stored_as = f"{why}, and it is stored {words(x.perm)}"
                self._emit("TRANSPOSE", (x.tensor, self.ints(order)), (moved.tensor,), {}, stored_as)
                self._moved[key] = moved.tensor
        return replace(x, perm=perm, tensor=self._moved[key], view=None)

    def transpose(self, x: Value, order: Sequence[int]) -> Value:
        """``x.transpose(order)``: a new name for each axis, and no operator."""
        shape = tuple(x.shape[axis] for axis in order)
        if x.const is not None:
            return self.constant(x.const.transpose(order), x.dtype)
        return replace(x, shape=shape, perm=layout.transposed(x.perm, order), view=None)

    def reshape(self, x: Value, shape: Shape, prefer: Perm | None = None) -> Value:
        """``x.reshape(shape)``: free when each group of axes is stored together and in order.

        Args:
            x: The value.
            shape: New logical shape, of the same size.
            prefer: The perm of the result if data has to be moved anyway.
        """
        if x.const is not None:
            return self.constant(x.const.reshape(shape), x.dtype)
        needed, result = layout.reshape_perms(x.shape, x.perm, shape)
        moves = not layout.same_order(x.shape, x.perm, needed)
        if moves and prefer is not None and layout.can_group(x.shape, shape, prefer):
            result = prefer
            needed = layout.grouped_perm(x.shape, shape, prefer)
        if moves:
            x = self.to(
                x, needed, why=f"Reshape {x.shape} to {shape} joins axes in their order {words(needed)}"
            )
        stored = layout.physical(shape, result)
        tensor = self._reshape_tensor(x.tensor, stored, x.dtype, x.quantization)
        return Value(shape, x.dtype, result, tensor, quantization=x.quantization)

    def view_as(self, x: Value, stored: Shape) -> Value:
        """The stored bytes of ``x`` under another physical shape, named as they are stored."""
        tensor = self._reshape_tensor(x.tensor, stored, x.dtype, x.quantization)
        return Value(stored, x.dtype, identity(len(stored)), tensor, quantization=x.quantization)

    def stored_as(self, x: Value, shape: Shape, perm: Perm) -> Value:
        """The stored bytes of ``x`` taken as a value of logical ``shape`` that is stored by ``perm``."""
        made = self.view_as(x, layout.physical(shape, perm))
        return replace(made, shape=shape, perm=perm)

    def copy(self, x: Value) -> Value:
        """``x`` in a tensor of its own."""
        made = self.like(x)
        self._emit_reshape(x.tensor, made.tensor)
        return made

    def demand(self, value: ir.Value) -> Perm | None:
        """The layout that the readers of an ONNX value want, looking through ops that take any."""
        rank = len(static_shape(value) or ())
        waiting, seen = [value], set()
        while waiting:
            current = waiting.pop(0)
            if current in seen or len(static_shape(current) or ()) != rank:
                continue
            seen.add(current)
            for use in current.uses():
                if use.node.op_type in CHANNELS_LAST_OPS and use.idx == 0:
                    return channels_last(rank)
                if use.node.op_type in FOLLOWING_OPS:
                    waiting += use.node.outputs
        return identity(rank) if value.is_graph_output() else None

    def join(self, values: Sequence[Value], rank: int) -> Perm:
        """The layout in which values that meet in one operator move the fewest bytes."""
        full = [v for v in values if v.const is None and v.rank == rank]

        def cost(perm: Perm) -> int:
            moving = [v for v in full if not layout.same_order(v.shape, v.perm, perm)]
            orders = {(v.tensor, tuple(v.perm.index(axis) for axis in perm)): v.size_bytes for v in moving}
            return sum(size for key, size in orders.items() if key not in self._moved)

        candidates = list(dict.fromkeys(v.perm for v in full)) or [identity(rank)]
        return min(candidates, key=lambda perm: (cost(perm), perm == identity(rank)))

    def _reshape_tensor(
        self, tensor: int, shape: Shape, dtype: str, quantization: Quantization | None
    ) -> int:
        """The tensor with the same bytes and another physical shape."""
        source = self.graph.tensors[tensor]
        if source.producer is not None and self.graph.ops[source.producer].code == "RESHAPE":
            tensor = self.graph.ops[source.producer].inputs[0]
        if self.graph.tensors[tensor].shape == shape:
            return tensor
        key = (tensor, shape)
        if key not in self._reshaped:
            made = self.graph.add_tensor(Tensor(self.name, shape, dtype, quantization=quantization))
            self._emit_reshape(tensor, made)
            self._reshaped[key] = made
        return self._reshaped[key]

    def _emit_reshape(self, source: int, target: int) -> None:
        shape = self.graph.tensors[target].shape
        self._emit("RESHAPE", (source, self.ints(shape)), (target,), {"new_shape": shape})

    # Operators

    def emit(self, code: str, inputs: Sequence[Operand], out: Value, **options: Any) -> Value:
        """Emit one operator with one output, which is returned."""
        self.emit_many(code, inputs, [out], **options)
        return out

    def emit_many(self, code: str, inputs: Sequence[Operand], outs: Sequence[Value], **options: Any) -> None:
        """Emit one operator. The inputs are taken in the layouts they have.

        Raises:
            Inexpressible: the kernel doesn't take the element type.
        """
        tensors = tuple(-1 if x is None else x if isinstance(x, int) else self.tensor(x) for x in inputs)
        self._emit(code, tensors, tuple(out.tensor for out in outs), options)

    def _emit(
        self,
        code: str,
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        options: dict[str, Any],
        why: str = "",
    ) -> None:
        dtype = self.graph.tensors[inputs[DATA_OPERAND.get(code, 0)]].dtype
        if dtype not in KERNEL_TYPES[code]:
            takes = ", ".join(sorted(KERNEL_TYPES[code]))
            raise Inexpressible(f"TFLite's {code} takes {takes}, and the data is {dtype}", code="EK1004")
        self.graph.add_op(Op(code, inputs, outputs, options, self.name, why))

    def unary(self, code: str, x: Value, **options: Any) -> Value:
        """One operator on each element, in the layout that ``x`` has."""
        return self.emit(code, [x], self.like(x), **options)

    def binary(self, code: str, x: Value, y: Value, dtype: str | None = None, **options: Any) -> Value:
        """One broadcasting operator with two operands."""
        if code in ("ADD", "SUB", "MUL", "DIV"):
            options.setdefault("fused_activation_function", "NONE")
        return self.elementwise(code, [x, y], dtype, **options)

    def elementwise(
        self, code: str, operands: Sequence[Value], dtype: str | None = None, **options: Any
    ) -> Value:
        """One broadcasting operator; all operands are brought to the layout that moves the fewest bytes.

        Args:
            code: Operator.
            operands: Values that broadcast by numpy's rule.
            dtype: Element type of the result; None is that of the last operand.
            options: Options of the operator.
        """
        shape = tuple(int(n) for n in np.broadcast_shapes(*(v.shape for v in operands)))
        perm = self.join(operands, len(shape))
        aligned = [self._aligned(v, perm, len(shape)) for v in operands]
        out = self.new(shape, dtype or operands[-1].dtype, perm)
        shapes = [self.graph.tensors[t].shape for t in aligned]
        if len(shape) <= 4 or all(s == shapes[0] for s in shapes):
            return self.emit(code, aligned, out, **options)
        # Kernels broadcast up to rank 4 (some 5 or 6): neighbouring axes that broadcast alike are merged.
        *merged, whole = layout.collapsed([*shapes, self.graph.tensors[out.tensor].shape])
        narrow = [
            self._reshape_tensor(t, s, self.graph.tensors[t].dtype, None)
            for t, s in zip(aligned, merged, strict=True)
        ]
        if len(whole) > 4:  # BROADCAST_TO has no such limit, and equal shapes need no broadcast
            narrow = [self._broadcast(t, whole) for t in narrow]
        result = self.emit(code, narrow, self.new(whole, out.dtype), **options)
        self._emit_reshape(result.tensor, out.tensor)
        return out

    def _broadcast(self, tensor: int, shape: Shape) -> int:
        source = self.graph.tensors[tensor]
        if source.shape == shape:
            return tensor
        wide = self._reshape_tensor(
            tensor, (1,) * (len(shape) - len(source.shape)) + source.shape, source.dtype, None
        )
        return self.emit("BROADCAST_TO", [wide, self.ints(shape)], self.new(shape, source.dtype)).tensor

    def _aligned(self, x: Value, perm: Perm, rank: int) -> int:
        """The tensor of an operand that broadcasts against values stored by ``perm``."""
        added = rank - x.rank
        if x.const is not None:
            full = x.const.reshape((1,) * added + x.shape).transpose(perm)
            shape = list(full.shape)
            while len(shape) > 1 and shape[0] == 1:
                shape.pop(0)
            return self.tensor(
                replace(self.constant(full.reshape(shape), x.dtype), quantization=x.quantization)
            )
        shifted = tuple(axis + added for axis in x.perm)
        if x.size == 1 or perm[added:] == shifted:
            return x.tensor
        wide = self._reshape_tensor(x.tensor, (1,) * added + layout.physical(x.shape, x.perm), x.dtype, None)
        expanded = Value((1,) * added + x.shape, x.dtype, (*range(added), *shifted), wide)
        return self.to(expanded, perm).tensor

    def activate(self, x: Value, activation: str) -> Value:
        """RELU, RELU6 or RELU_N1_TO_1, fused into the operator that makes ``x`` if nothing else reads it."""
        tensor = self.graph.tensors[x.tensor] if x.tensor >= 0 else None
        if tensor is not None and tensor.producer is not None and tensor.readers == 0:
            op = self.graph.ops[tensor.producer]
            alone = all(len(v.uses()) <= 1 and not v.is_graph_output() for v in self._bound.get(x.tensor, []))
            if alone and op.options.get("fused_activation_function") == "NONE":
                options = {**op.options, "fused_activation_function": activation}
                self.graph.ops[tensor.producer] = replace(op, options=options)
                return replace(x, view=None)
        return self.unary(activation, x)

    def quantized_by(self, x: Value, quantization: Quantization) -> bool:
        """Whether the stored integers of ``x`` stand for reals by ``quantization``.

        Integers of which nothing is known yet (a graph input, or what was moved from one) are given it.
        """
        tensor = self.graph.tensors[x.tensor]
        if tensor.quantization is None and tensor.producer is None:
            tensor.quantization = quantization
        return tensor.quantization == quantization

    def as_integers(self, x: Value) -> Value:
        """``x`` without what is known of its scale: CAST reads the stored numbers as they are."""
        return replace(x, quantization=None)

    def producer_code(self, x: Value) -> tuple[str, str]:
        """Operator that makes ``x`` and its fused activation; ("", "") for an input or a constant."""
        producer = self.graph.tensors[x.tensor].producer if x.tensor >= 0 else None
        if producer is None:
            return "", ""
        op = self.graph.ops[producer]
        return op.code, str(op.options.get("fused_activation_function", "NONE"))


lower: OpTable[Value] = OpTable("tflite")
"""ONNX op -> the function in one of the ops_*.py that lowers it."""


def words(perm: Perm) -> str:
    """A layout in words."""
    if perm == identity(len(perm)):
        return "as in the source"
    if perm == channels_last(len(perm)):
        return "channels last"
    return "in the order of axes " + ", ".join(map(str, perm))


def static_shape(value: ir.Value) -> Shape | None:
    """The shape of an ONNX value, or None if it is unknown or not all static."""
    if value.shape is None:
        return None
    return tuple(d for d in value.shape if isinstance(d, int)) if value.shape.is_static() else None


def stored_dtype(value: ir.Value) -> str:
    """The element type that stands for an ONNX value's.

    Raises:
        Inexpressible: TFLite's kernels have none.
    """
    if value.dtype is None or value.dtype not in STORED:
        dtype = "unknown" if value.dtype is None else value.dtype.name
        raise Inexpressible(
            f"{value.name} is {dtype}, which TFLite's kernels do not compute with",
            "export the model in float32",
            "EK1004",
        )
    return STORED[value.dtype]


def narrowed(array: Array, dtype: str) -> Array:
    """``array`` as ``dtype``.

    Raises:
        Inexpressible: an integer does not fit.
    """
    if array.dtype.name == dtype:
        return array
    target = np.dtype(dtype)
    if target.kind in "iu" and array.size:
        limits = np.iinfo(target)
        if array.min() < limits.min or array.max() > limits.max:
            raise Inexpressible(
                f"a constant holds {array.min()} to {array.max()}, and {dtype} is what TFLite has",
                code="EK1004",
            )
    return array.astype(target)
