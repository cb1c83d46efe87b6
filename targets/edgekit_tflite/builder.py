"""Builder for lowerings: values in symbolic layouts, conversions on demand, operators.

A ``Value`` (values.py) is a tensor and the permutation by which it is stored (layout.py). A lowering states
the layout it needs (``b.to(x, channels_last(4))``) and a TRANSPOSE is emitted only when the value isn't
stored so already; conversions are cached. Constants are permuted here, at compile time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from edgekit.compiler.lowering.op_table import OpTable
from edgekit.compiler.model.node_checks import static_dims
from edgekit.diagnostics import Inexpressible
from edgekit_tflite import layout
from edgekit_tflite.demand import Demands, io_perm, only_multiplied
from edgekit_tflite.graph import TensorQuantization
from edgekit_tflite.layout import Perm, Shape, identity, words
from edgekit_tflite.pairs import PAIR
from edgekit_tflite.stored import StoredValues, shifted
from edgekit_tflite.values import STORED, WIDENED, Operand, Value, View, stored_dtype

__all__ = ["Builder", "Operand", "Value", "View", "lower"]


ONE_SCALE = ("MAXIMUM", "MINIMUM")
"""Operators whose integer kernel compares stored numbers: all by one scale."""


class Builder(StoredValues):
    """Builder of one graph from one model, for one compilation."""

    def __init__(self, precision: str) -> None:
        super().__init__(precision)
        self._demands = Demands()
        self._values: dict[ir.Value, Value] = {}
        self._integers: dict[ir.Value, Value] = {}
        self._bound: dict[int, list[ir.Value]] = {}
        self._transposed: dict[tuple[int, Perm], int] = {}

    # The four methods that OpTable.lower calls

    def handle(self, value: ir.Value) -> Value:
        if value in self._integers and (self.reads_integers or self.keeps(self._integers[value])):
            integers = self._integers[value]
            return self.signed(integers) if self.table is None else self.own_real(integers)
        if value not in self._values:
            if value in self._integers:
                self._values[value] = self.real(self._integers[value])
            elif value.const_value is not None:
                self._values[value] = self._constant_of(value, value.const_value)
            else:
                raise ValueError(f"{value.name} is used before it is made")
        return self._values[value]

    def _constant_of(self, value: ir.Value, tensor: ir.TensorProtocol) -> Value:
        if self.node is None or self.node.op_type not in PAIR or value.dtype in STORED:
            dtype = stored_dtype(value)
            array = tensor.numpy()
            return self.constant(array.astype(np.float32) if array.dtype == np.float16 else array, dtype)
        if value.dtype in WIDENED and self.node.op_type == "DequantizeLinear":
            return self.constant(tensor.numpy().astype(WIDENED[value.dtype]))
        name = next(str(v.name) for v in (*self.node.inputs[:1], *self.node.outputs) if v is not None)
        dtype = "an unknown type" if value.dtype is None else value.dtype.name
        raise Inexpressible(
            f"the pair at {name} stores {dtype}; TFLite supports int8, uint8 and int16",
            "quantize it to int8, or build it for ort",
            "EK1004",
        )

    def bind(self, value: ir.Value, handle: Value) -> None:
        stored_dtype(value)
        declared = static_dims(value)
        if declared is not None and declared != handle.shape:
            raise Inexpressible(
                f"{value.name} is declared as {declared}, but the node returns {handle.shape}"
            )
        if self.table is not None:
            handle = self.quantized(handle, self.table)
        is_quantized = handle.quantization is not None and value.dtype == ir.DataType.FLOAT
        if value.dtype == ir.DataType.FLOAT and handle.dtype != "float32" and not is_quantized:
            raise ValueError(f"{value.name} is held as {handle.dtype}, and by which scale was lost")
        (self._integers if is_quantized else self._values)[value] = handle
        if handle.tensor >= 0:
            tensor = self.graph.tensors[handle.tensor]
            if handle.tensor not in self._bound and tensor.data is None:
                tensor.name = str(value.name)
            self._bound.setdefault(handle.tensor, []).append(value)

    def bind_unknown(self, value: ir.Value) -> None:
        dtype = STORED.get(value.dtype, "float32") if value.dtype is not None else "float32"
        shape, scheme = static_dims(value) or (), self.plan.as_int8.get(value)
        if scheme is not None:
            self._integers[value] = self.new(shape, "int8", quantization=scheme)
        else:
            self._values[value] = self.new(shape, dtype)

    # Inputs and outputs of the graph

    def add_input(self, value: ir.Value) -> int:
        """Declare a graph input, stored by ``io_perm``."""
        shape = static_dims(value)
        assert shape is not None
        dtype, quantization = stored_dtype(value), self.plan.stored.get(value)
        quantization = (
            shifted(quantization, 128) if quantization is not None and dtype == "uint8" else quantization
        )
        handle = self.new(shape, dtype, io_perm(value), quantization)
        self.graph.tensors[handle.tensor].name = str(value.name)
        self.graph.inputs.append(handle.tensor)
        self._values[value] = handle
        self._bound[handle.tensor] = [value]
        return handle.tensor

    def add_output(self, value: ir.Value) -> int:
        """Declare a graph output, stored by ``io_perm``, in its own tensor."""
        self.node, self.form, self.reads_integers = value.producer(), None, False
        perm = io_perm(value)
        clause = "keeps the source's layout" if perm == identity(len(perm)) else f"should have {words(perm)}"
        reason = f"output {value.name} {clause}"
        if value in self._integers and value not in self._values:
            integers = self._integers[value]  # a quarter of the bytes to transpose
            self._values[value] = self.real(self.to(integers, perm, reason))
        logical = self.handle(value)
        if logical.const is not None and logical.size == 0:
            logical = self._empty(logical)
        stored = self.to(logical, perm, reason)
        tensor = self.tensor(stored)
        needs_copy = tensor in self.graph.outputs or tensor in self.graph.inputs or stored.const is not None
        if needs_copy:
            tensor = self.copy(replace(stored, tensor=tensor)).tensor
        self.graph.tensors[tensor].name = str(value.name)
        self.graph.outputs.append(tensor)
        return tensor

    def _empty(self, x: Value) -> Value:
        """Emit a FILL without elements: the format treats a constant without bytes as no constant."""
        out = self.new(x.shape, x.dtype)
        zero = self.constant(np.zeros((), np.dtype(x.dtype)))
        return self.emit("FILL", [self.ints(x.shape), zero], out)

    # What the node being lowered declares

    def out_dtype(self) -> str:
        """Return the stored element type of the first output of the node being lowered."""
        assert self.node is not None
        return stored_dtype(self.node.outputs[0])

    def in_dtype(self) -> str:
        """Return the ONNX element type of the first input of the node being lowered."""
        assert self.node is not None
        assert self.node.inputs[0] is not None
        return stored_dtype(self.node.inputs[0])

    def declared(self, x: Value, quantization: TensorQuantization) -> TensorQuantization | None:
        """Return the quantization of ``x``; set it on a graph input without a known one."""
        tensor = self.graph.tensors[x.tensor]
        if x.quantization is None and tensor.quantization is None and tensor.producer is None:
            tensor.quantization = quantization
            return quantization
        return x.quantization

    # Layout

    def to(self, x: Value, perm: Perm, reason: str = "") -> Value:
        """Return ``x`` stored by ``perm``; ``reason`` is reported if that takes a TRANSPOSE."""
        if x.perm == perm:
            return x
        if x.const is not None:
            return replace(x, perm=perm)
        order = tuple(x.perm.index(axis) for axis in perm)
        key = (x.tensor, order)
        if key not in self._transposed:
            if layout.same_order(x.shape, x.perm, perm):
                stored = layout.physical(x.shape, perm)
                self._transposed[key] = self.reshape_tensor(x.tensor, stored, x.dtype, x.quantization)
            else:
                transposed = self.new(x.shape, x.dtype, perm, x.quantization)
                reason = reason or f"{self.node.op_type if self.node else ''} takes its data {words(perm)}"
                stored_as = f"{reason}, and it is stored {words(x.perm)}"
                self.emit_transpose(x.tensor, order, transposed.tensor, stored_as)
                self._transposed[key] = transposed.tensor
        return replace(x, perm=perm, tensor=self._transposed[key], view=None)

    def transpose(self, x: Value, order: Sequence[int]) -> Value:
        """Return ``x.transpose(order)`` by relabelling axes; no operator is emitted."""
        shape = tuple(x.shape[axis] for axis in order)
        if x.const is not None:
            return self.constant(x.const.transpose(order), x.dtype)
        return replace(x, shape=shape, perm=layout.transposed(x.perm, order), view=None)

    def reshape(self, x: Value, shape: Shape, prefer: Perm | None = None) -> Value:
        """Return ``x.reshape(shape)``: free when each group of axes is stored together and in order.

        Args:
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
            x = self.to(x, needed, reason=f"Reshape {x.shape} to {shape} takes its data {words(needed)}")
        stored = layout.physical(shape, result)
        tensor = self.reshape_tensor(x.tensor, stored, x.dtype, x.quantization)
        return Value(shape, x.dtype, result, tensor, quantization=x.quantization)

    def flatten(self, x: Value, shape: Shape) -> Value | None:
        """Reshape ``x`` to rank 2 without moving data if only constant weights read it; else return None.

        The weights' columns are put into the order in which ``x`` is stored, which ``columns`` holds.
        """
        assert self.node is not None
        if len(shape) != 2 or x.rank < 2 or x.shape[0] != shape[0] or x.const is not None:
            return None
        if not only_multiplied(self.node.outputs[0]):
            return None
        if x.perm[0] != 0 and x.shape[0] != 1:
            return None
        inner = tuple(axis - 1 for axis in x.perm if axis != 0)
        columns = np.arange(shape[1]).reshape(x.shape[1:]).transpose(inner).ravel()
        tensor = self.reshape_tensor(x.tensor, shape, x.dtype, x.quantization)
        return Value(shape, x.dtype, (0, 1), tensor, quantization=x.quantization, columns=columns)

    def view_as(self, x: Value, stored: Shape) -> Value:
        """Return the stored bytes of ``x`` under another physical shape, with axes in stored order."""
        tensor = self.reshape_tensor(x.tensor, stored, x.dtype, x.quantization)
        return Value(stored, x.dtype, identity(len(stored)), tensor, quantization=x.quantization)

    def stored_as(self, x: Value, shape: Shape, perm: Perm) -> Value:
        """Return the stored bytes of ``x`` as a value of logical ``shape`` that is stored by ``perm``."""
        view = self.view_as(x, layout.physical(shape, perm))
        return replace(view, shape=shape, perm=perm)

    def copy(self, x: Value) -> Value:
        """Copy ``x`` into its own tensor."""
        result = self.like(x)
        self.emit_reshape(x.tensor, result.tensor)
        return result

    def demand(self) -> Perm | None:
        """Return the layout that readers want for the first output of the node being lowered."""
        return self._demands.layout_of(self.node.outputs[0]) if self.node is not None else None

    def join(self, values: Sequence[Value], rank: int) -> Perm:
        """Return the layout in which the operands of one operator move the fewest bytes."""
        full = [v for v in values if v.const is None and v.rank == rank]
        candidates = list(dict.fromkeys(v.perm for v in full)) or [identity(rank)]
        if len(candidates) == 1 and all(n > 1 for v in full for n in v.shape):
            return candidates[0]
        demanded = self.demand()
        if demanded is not None and len(demanded) == rank:
            candidates.append(demanded)

        def cost(perm: Perm) -> tuple[int, bool, int]:
            moving = [v for v in full if not layout.same_order(v.shape, v.perm, perm)]
            orders = {(v.tensor, tuple(v.perm.index(axis) for axis in perm)): v.size_bytes for v in moving}
            reshaped = sum(v.perm != perm for v in full)
            size = sum(size for key, size in orders.items() if key not in self._transposed)
            return size, perm != demanded, reshaped

        return min(candidates, key=cost)

    # Operators

    def unary(self, code: str, x: Value, **options: Any) -> Value:
        """Emit an elementwise operator, in the layout of ``x``."""
        if self.is_too_narrow(code, [x]):
            return self.cast(self.unary(code, self.cast(x, "int32"), **options), x.dtype)
        return self.emit(code, [x], self.result(x.shape, x.perm, like=x), **options)

    def binary(self, code: str, x: Value, y: Value, dtype: str | None = None, **options: Any) -> Value:
        """Emit a broadcasting operator with two operands."""
        if code in ("ADD", "SUB", "MUL", "DIV"):
            options.setdefault("fused_activation_function", "NONE")
        return self.elementwise(code, [x, y], dtype, **options)

    def elementwise(
        self, code: str, operands: Sequence[Value], dtype: str | None = None, **options: Any
    ) -> Value:
        """Emit a broadcasting operator; all operands get the layout that moves the fewest bytes.

        Args:
            dtype: Element type of the result; None means the last operand's.
        """
        if self.is_too_narrow(code, operands):
            wide = self.elementwise(code, [self.cast(v, "int32") for v in operands], dtype, **options)
            return wide if dtype is not None else self.cast(wide, operands[-1].dtype)
        shape = tuple(int(n) for n in np.broadcast_shapes(*(v.shape for v in operands)))
        perm = self.join(operands, len(shape))
        if self.form is not None:
            if code in ONE_SCALE:
                scheme = self.form.output or operands[0].quantization
                operands = [v if scheme is None else self.requantized(v, scheme) for v in operands]
            out = self.result(shape, perm, like=operands[0])
        else:
            out = self.new(shape, dtype or operands[-1].dtype, perm)
        aligned = [self._aligned(v, perm, len(shape)) for v in operands]
        shapes = [self.graph.tensors[t].shape for t in aligned]
        if len(shape) <= 4 or all(s == shapes[0] for s in shapes):
            return self.emit(code, aligned, out, **options)
        # Kernels broadcast up to rank 4 (some 5 or 6): neighbouring axes that broadcast alike are merged.
        *merged, whole = layout.collapsed([*shapes, self.graph.tensors[out.tensor].shape])
        narrow = [
            self.reshape_tensor(t, s, self.graph.tensors[t].dtype, self.graph.tensors[t].quantization)
            for t, s in zip(aligned, merged, strict=True)
        ]
        if len(whole) > 4:  # BROADCAST_TO has no such limit, and equal shapes need no broadcast
            narrow = [self._broadcast(t, whole) for t in narrow]
        result = self.emit(code, narrow, self.new(whole, out.dtype, None, out.quantization), **options)
        self.emit_reshape(result.tensor, out.tensor)
        return out

    def _broadcast(self, tensor: int, shape: Shape) -> int:
        source = self.graph.tensors[tensor]
        if source.shape == shape:
            return tensor
        wide = self.reshape_tensor(
            tensor, (1,) * (len(shape) - len(source.shape)) + source.shape, source.dtype, source.quantization
        )
        out = self.new(shape, source.dtype, None, source.quantization)
        return self.emit("BROADCAST_TO", [wide, self.ints(shape)], out).tensor

    def _aligned(self, x: Value, perm: Perm, rank: int) -> int:
        """Return the tensor of an operand that broadcasts against values stored by ``perm``."""
        added = rank - x.rank
        if x.const is not None:
            full = x.const.reshape((1,) * added + x.shape).transpose(perm)
            shape = list(full.shape)
            while len(shape) > 1 and shape[0] == 1:
                shape.pop(0)
            return self.tensor(
                replace(self.constant(full.reshape(shape), x.dtype), quantization=x.quantization)
            )
        shifted_perm = tuple(axis + added for axis in x.perm)
        if x.size == 1 or perm[added:] == shifted_perm:
            return x.tensor
        stored = (1,) * added + layout.physical(x.shape, x.perm)
        wide = self.reshape_tensor(x.tensor, stored, x.dtype, x.quantization)
        expanded = Value(
            (1,) * added + x.shape, x.dtype, (*range(added), *shifted_perm), wide, quantization=x.quantization
        )
        return self.to(expanded, perm).tensor

    def activate(self, x: Value, activation: str) -> Value:
        """Emit RELU, RELU6 or RELU_N1_TO_1, fused into the producer of ``x`` if nothing else reads ``x``."""
        tensor = self.graph.tensors[x.tensor] if x.tensor >= 0 else None
        if tensor is not None and tensor.producer is not None and tensor.readers == 0:
            op = self.graph.ops[tensor.producer]
            sole = all(len(v.uses()) <= 1 and not v.is_graph_output() for v in self._bound.get(x.tensor, []))
            if sole and op.options.get("fused_activation_function") == "NONE":
                options = {**op.options, "fused_activation_function": activation}
                self.graph.ops[tensor.producer] = replace(op, options=options)
                return replace(x, view=None)
        return self.emit(activation, [x], self.like(x))

    def as_integers(self, x: Value) -> Value:
        """Return ``x`` without its quantization: CAST reads the stored numbers as they are."""
        return replace(x, quantization=None)

    def producer_code(self, x: Value) -> tuple[str, str]:
        """Return the producer of ``x`` and its fused activation; ("", "") for an input or a constant."""
        producer = self.graph.tensors[x.tensor].producer if x.tensor >= 0 else None
        if producer is None:
            return "", ""
        op = self.graph.ops[producer]
        return op.code, str(op.options.get("fused_activation_function", "NONE"))


lower: OpTable[Value] = OpTable("tflite")
"""ONNX op -> the function in one of the ops_*.py that lowers it."""
