"""Builder for lowerings: values, constants placed once, operators in the precision of their node.

Float operators compute in one precision, float16 or float32: that of the program, or float32 for the nodes in
``full``. Operands of the other precision are cast, each value once. When coremltools' type inference rejects
an operator, the node gets a finding with coremltools' message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir

from edgekit.compiler.lowering.op_table import LoweredNode, OpTable
from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.rewriting import node_name
from edgekit.diagnostics import Inexpressible
from edgekit_coreml.constants import Constants
from edgekit_coreml.values import HALF_EPSILON, NARROW_CONSTANTS, Shape, Value, narrowed, stored_dtype
from edgekit_coreml.vendor import coremltools

__all__ = ["Builder", "Value", "lower"]

RANK_LIMIT = 5
"""Core ML's tensors have at most five axes."""
MIL_DTYPES = {"float32": "fp32", "float16": "fp16", "int32": "int32", "bool": "bool", "int8": "int8",
              "uint8": "uint8"}  # fmt: skip
"""numpy name -> name in MIL."""
NARROW_IOS = 17
"""The first iOS with int8 and uint8 values, and with a float16 lstm."""
NUMPY_DTYPES = {mil: name for name, mil in MIL_DTYPES.items()}


class Builder(LoweredNode):
    """Builder of one MIL function from one model; used for one compilation, inside that function's ``with``.

    Attributes:
        names: Name in MIL -> name of the ONNX value that it represents.
        origins: Name in MIL -> name of the ONNX node that it was built for, for all other names.
    """

    def __init__(
        self, precision: str, ios: int, full: frozenset[str] = frozenset(), palette_bits: int = 0
    ) -> None:
        coremltools()
        from coremltools.converters.mil.mil import Builder as MilBuilder

        self.precision = precision
        self.ios = ios
        self.names: dict[str, str] = {}
        self.origins: dict[str, str] = {}
        self._full = full
        self._mil: Any = MilBuilder
        self._constants = Constants(MilBuilder, ios, palette_bits, self._new_name)
        self._values: dict[ir.Value, Value] = {}
        self._casts: dict[tuple[int, str], Any] = {}
        self._names: set[str] = set()
        self._inputs: list[Any] = []
        self._widened = False
        self._named: dict[str, Any] = {}

    # The four methods that OpTable.lower calls

    def begin(self, node: ir.Node) -> None:
        self.node = node

    def handle(self, value: ir.Value) -> Value:
        if value not in self._values:
            if value.const_value is None:
                raise ValueError(f"{value.name} is used before it is made")
            narrow = NARROW_CONSTANTS.get(value.dtype) if value.dtype is not None else None
            dtype = narrow or self.stored_dtype(value)
            self._values[value] = self.constant(value.const_value.numpy(), dtype)
        return self._values[value]

    def bind(self, value: ir.Value, handle: Value) -> None:
        dtype = self.stored_dtype(value)
        declared = static_dims(value)
        if declared is not None and declared != handle.shape:
            raise Inexpressible(
                f"{value.name} is declared as {declared}, but the node returns {handle.shape}"
            )
        if dtype == "float16" and handle.dtype == "float32" and handle.const is None:
            handle = self.cast(handle, "float16")  # a model in float16 rounds here
        if handle.var is not None and str(handle.var.name).startswith(self._prefix()):
            mil_name = self.unique(str(value.name))
            self.names[mil_name] = str(value.name)
            self._named[mil_name] = handle.var
            handle.var.name = mil_name
        self._values[value] = handle

    def bind_unknown(self, value: ir.Value) -> None:
        shape = static_dims(value) or (1,)
        try:
            dtype = self.stored_dtype(value)
        except Inexpressible:
            dtype = "float32"
        self._values[value] = self.stand_in(shape, dtype)

    def stand_in(self, shape: Shape, dtype: str) -> Value:
        """Return a variable that stands for a value that cannot be expressed."""
        built = self.emit("fill", shape=list(shape) or [1], value=0.0)
        shaped = built if shape else self.emit("squeeze", x=built, axes=[0])
        return shaped if dtype == shaped.dtype else self.cast(shaped, dtype)

    # Values

    def stored_dtype(self, value: ir.Value) -> str:
        """Return the stored element type of an ONNX value. Before iOS 17 there is neither int8 nor uint8.

        A program in float32 stores float16 in float32 too, and drops the roundings of a float16 model, as
        ONNX Runtime does, whose outputs are the reference.

        Raises:
            Inexpressible: MIL has none.
        """
        dtype = stored_dtype(value)
        if dtype == "float16" and self.precision == "fp32":
            return "float32"
        return "int32" if dtype in ("int8", "uint8") and self.ios < NARROW_IOS else dtype

    def put(self, value: ir.Value, handle: Value) -> None:
        """Let ``handle`` represent a graph input."""
        self._values[value] = handle

    def value_of(self, var: Any) -> Value:
        """Wrap a variable of coremltools' builder in a ``Value``."""
        shape = tuple(int(n) for n in getattr(var, "shape", ()) or ())
        from coremltools.converters.mil.mil import types

        return Value(shape, NUMPY_DTYPES[types.builtin_to_string(var.dtype)], var)

    def constant(self, array: Any, dtype: str | None = None) -> Value:
        """Return a constant, which is stored when an operator first uses it."""
        array = np.asarray(array)
        dtype = dtype or {"int64": "int32", "float64": "float32"}.get(array.dtype.name, array.dtype.name)
        return Value(array.shape, dtype, const=array)

    def scalar(self, value: float, dtype: str = "float32") -> Value:
        """Return a constant of rank 0."""
        return self.constant(np.asarray(value, np.dtype(dtype)))

    def var(self, value: Value, dtype: str | None = None) -> Any:
        """Return the MIL variable of a value, cast to ``dtype`` if given; constants are placed once."""
        new_dtype = dtype or value.dtype
        if value.const is not None:
            return self._constants.array(np.asarray(value.const), new_dtype)
        if value.packed is not None:
            return self._constants.packed(value.packed, new_dtype)
        if value.dtype == new_dtype:
            return value.var
        key = (id(value.var), new_dtype)
        if key not in self._casts:
            self._casts[key] = self._mil.cast(x=value.var, dtype=MIL_DTYPES[new_dtype], name=self._new_name())
        return self._casts[key]

    def output(self, x: Value, name: str) -> tuple[Any, str]:
        """Make ``x`` an output of the program; return its own variable and that variable's name."""
        var = self.var(x)
        is_bound = var.op is None or var.op.op_type == "const" or self._crosses(var)
        if is_bound:
            var = self._mil.identity(x=var, name=self._new_name())
        plain = plain_name(name)
        inner = self._named.get(plain)
        # What is cast or reshaped for the interface gives way; another output, named out:0 as well as out_0,
        # does not.
        if inner is not None and inner is not var and not self._crosses(inner):
            self.names.pop(plain)
            self._names.discard(plain)
            inner.name = self.unique(f"{name}_inner")
            self.names[str(inner.name)] = name
        if str(var.name) != plain:
            self.names.pop(str(var.name), None)
            var.name = self.unique(name)
        self._inputs.append(var)
        self.names[str(var.name)] = name
        return var, str(var.name)

    def _crosses(self, var: Any) -> bool:
        return any(var is other for other in self._inputs)

    # Names

    def unique(self, name: str) -> str:
        """Return ``name`` as a valid and unused MIL name: letters, digits and underscores."""
        plain = candidate = plain_name(name)
        number = 0
        while candidate in self._names:
            number += 1
            candidate = f"{plain}_{number}"
        self._names.add(candidate)
        return candidate

    def _prefix(self) -> str:
        return plain_name(f"op_{node_name(self.node) if self.node else 'graph'}__")

    def _new_name(self) -> str:
        mil_name = self.unique(self._prefix())
        if self.node is not None:
            self.origins[mil_name] = node_name(self.node)
        return mil_name

    # What the node being lowered declares

    def out_dtype(self) -> str:
        """Return the stored element type of the first output of the node being lowered."""
        assert self.node is not None
        return self.stored_dtype(self.node.outputs[0])

    # Operators

    @property
    def compute(self) -> str:
        """Return the dtype in which the float operators of the node being lowered compute."""
        if self._widened:
            return "float32"
        if self.precision == "fp32" or (self.node is not None and node_name(self.node) in self._full):
            return "float32"
        return "float16"

    @contextmanager
    def in_float32(self) -> Iterator[None]:
        """Build operators in this context in float32."""
        before, self._widened = self._widened, True
        try:
            yield
        finally:
            self._widened = before

    def epsilon(self, value: float) -> float:
        """Return an epsilon that is not zero in the precision of the node."""
        return max(value, HALF_EPSILON) if self.compute == "float16" and value > 0 else value

    def emit(self, op: str, **operands: Any) -> Value:
        """Emit an operator with one output. Float operands are cast to the precision of the node.

        Raises:
            Inexpressible: coremltools' type inference rejects it; the message is coremltools' own.
        """
        return self.value_of(self._emit(op, operands))

    def emit_many(self, op: str, **operands: Any) -> tuple[Value, ...]:
        """Emit an operator with several outputs."""
        return tuple(self.value_of(var) for var in self._emit(op, operands))

    def _emit(self, op: str, operands: dict[str, Any]) -> Any:
        ready = {key: self._operand(operand) for key, operand in operands.items() if operand is not None}
        try:
            return getattr(self._mil, op)(name=self._new_name(), **ready)
        except (ValueError, TypeError, AssertionError, IndexError, NotImplementedError) as problem:
            story = " ".join(str(problem).split()) or type(problem).__name__
            raise Inexpressible(f"Core ML's {op} rejects it: {story[:300]}") from None

    def _operand(self, operand: Any) -> Any:
        if isinstance(operand, Value):
            if operand.rank > RANK_LIMIT and operand.const is None:
                raise Inexpressible(f"it reads {operand.rank} axes; Core ML supports {RANK_LIMIT}")
            return self.var(operand, self.compute if operand.is_float else None)
        if isinstance(operand, float):
            return narrowed(np.asarray(operand, np.float32), self.compute)[()]
        if isinstance(operand, (list, tuple)) and operand and isinstance(operand[0], Value):
            return [self._operand(one) for one in operand]
        return list(operand) if isinstance(operand, tuple) else operand

    def unary(self, op: str, x: Value, **options: Any) -> Value:
        """Emit an elementwise operator with one operand."""
        return self.emit(op, x=x, **options)

    def binary(self, op: str, x: Value, y: Value) -> Value:
        """Emit a broadcasting operator with two operands."""
        return self.emit(op, x=x, y=y)

    def cast(self, x: Value, dtype: str) -> Value:
        """Cast ``x`` to another element type; a constant is converted here."""
        if x.dtype == dtype:
            return x
        if x.const is not None:
            return self.constant(x.const.astype(np.dtype(dtype)), dtype)
        return Value(x.shape, dtype, self.var(x, dtype))

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """Emit ``x.reshape(shape)``."""
        target = tuple(int(n) for n in shape)
        if target == x.shape:
            return x
        if x.const is not None:
            return self.constant(x.const.reshape(target), x.dtype)
        if len(target) > RANK_LIMIT:
            return Value(target, x.dtype, self.var(x))  # the elements in order; only moves may read it
        if not target:
            flat = x if x.rank == 1 else self.reshape(x, (1,))
            return self._typed("squeeze", flat, axes=[0])
        if not x.shape:
            lifted = self._typed("expand_dims", x, axes=[0])
            return self.reshape(lifted, target)
        return self._typed("reshape", x, shape=list(target))

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        """Emit ``x.transpose(perm)``."""
        if list(perm) == list(range(x.rank)):
            return x
        if x.const is not None:
            return self.constant(x.const.transpose(perm), x.dtype)
        if x.packed is not None:
            packed = x.packed.transposed(perm)
            return Value(packed.data.shape, x.dtype, packed=packed)
        if x.rank <= RANK_LIMIT:
            return self._typed("transpose", x, perm=list(perm))
        # Axes that stay neighbours move as one.
        groups = [[perm[0]]]
        for axis in perm[1:]:
            if axis == groups[-1][-1] + 1:
                groups[-1].append(axis)
            else:
                groups.append([axis])
        inner = sorted(groups)
        if len(groups) > RANK_LIMIT:
            raise Inexpressible(f"it orders {x.rank} axes as {list(perm)}; Core ML supports {RANK_LIMIT}")
        merged = self.reshape(x, [prod(x.shape[axis] for axis in group) for group in inner])
        transposed = self.transpose(merged, [inner.index(group) for group in groups])
        return self.reshape(transposed, [x.shape[axis] for axis in perm])

    def _typed(self, op: str, x: Value, **options: Any) -> Value:
        """Emit an operator that moves data, in the type of the data."""
        try:
            return self.value_of(getattr(self._mil, op)(x=self.var(x), name=self._new_name(), **options))
        except (ValueError, TypeError, AssertionError) as problem:
            story = " ".join(str(problem).split())
            raise Inexpressible(f"Core ML's {op} rejects it: {story[:300]}") from None


def plain_name(name: str) -> str:
    """Return ``name`` as a valid MIL name.

    >>> plain_name("/stem/conv.0"), plain_name("537")
    ('_stem_conv_0', '_537')
    """
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return plain if re.match(r"[A-Za-z_]", plain) else f"_{plain}"


lower: OpTable[Value] = OpTable("coreml")
"""ONNX op -> the function in one of the ops_*.py that lowers it."""
