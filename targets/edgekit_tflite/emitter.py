"""Tensors, constants and operators of the graph being built, in the layouts of their values."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgekit.compiler.lowering.op_table import LoweredNode
from edgekit.compiler.model.rewriting import node_name
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array
from edgekit_tflite import layout
from edgekit_tflite.graph import Graph, Op, Tensor, TensorQuantization
from edgekit_tflite.kernel_types import DATA_OPERAND, INTEGER_KERNELS, KERNEL_TYPES
from edgekit_tflite.layout import Perm, Shape, identity
from edgekit_tflite.values import NARROW, Operand, Value, narrowed

FP16_SMALLEST_SIZE = 4096
"""Weights with fewer elements stay float32. Measured on five networks: 3 to 13 dB for 0.5 to 9 % of the size,
as the small ones are depthwise and first layers, whose rounding everything after them inherits."""
INTEGERS = ("int8", "uint8")
PLAIN_TRANSPOSE_AXES = 5
"""TFLite Micro: "Transpose op only supports 1D-5D input arrays"."""
MOST_AXES = 6
LIMITED_KERNELS = frozenset(
    {
        *("CONCATENATION", "FULLY_CONNECTED", "MEAN", "PAD", "PADV2", "REDUCE_ALL", "REDUCE_ANY"),
        *("REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "SOFTMAX", "LOG_SOFTMAX", "SUM"),
    }
)
"""Kernels that XNNPACK or TFLite itself does not load with more axes: each was tried with seven on LiteRT
2.3.0, and the others of elementwise ops, slices, gathers and transposes run."""
SHARED_UP_TO_BYTES = 4096
"""Equal constants up to this size are stored once."""


class Emitter(LoweredNode):
    """Emitter that fills one graph; of ONNX it uses only the name of the node being lowered.

    ``plain``: whether to write for an interpreter without XNNPACK: TFLite Micro's kernels.
    """

    def __init__(self, precision: str) -> None:
        self.graph = Graph()
        self.precision = precision
        self.plain = False
        self._reshaped: dict[tuple[int, Shape], int] = {}
        self._placed: dict[tuple[int, Perm, str], tuple[int, Array]] = {}
        self._shared: dict[Hashable, int] = {}
        self._halved: dict[Hashable, tuple[int, Array]] = {}
        self._constants: dict[str, int] = {}

    @property
    def computes_on_integers(self) -> bool:
        """Return whether the node being lowered takes its floats as integers."""
        return False

    @property
    def name(self) -> str:
        return node_name(self.node) if self.node is not None else ""

    def new(
        self,
        shape: Shape,
        dtype: str,
        perm: Perm | None = None,
        quantization: TensorQuantization | None = None,
    ) -> Value:
        """Return a new value, for use as an operator's output."""
        perm = identity(len(shape)) if perm is None else perm
        tensor = Tensor(self.name, layout.physical(shape, perm), dtype, quantization=quantization)
        return Value(shape, dtype, perm, self.graph.add_tensor(tensor), quantization=quantization)

    def like(self, x: Value, dtype: str | None = None) -> Value:
        """Return a new value with the shape, layout and, for the same dtype, quantization of ``x``."""
        quantization = x.quantization if dtype is None else None
        return self.new(x.shape, dtype or x.dtype, x.perm, quantization)

    def constant(self, array: Any, dtype: str | None = None) -> Value:
        """Return a constant, which is stored when an operator first uses it."""
        array = np.asarray(array)
        dtype = dtype or {"int64": "int32", "float64": "float32"}.get(array.dtype.name, array.dtype.name)
        return Value(array.shape, dtype, identity(array.ndim), const=array)

    def constant_like(self, array: Array, x: Value) -> Value:
        """Return a constant in the element type and quantization of ``x`` from stored numbers, ``array``."""
        return replace(self.constant(array, x.dtype), quantization=x.quantization)

    def ints(self, values: Sequence[int]) -> int:
        """Return the tensor of a constant int32 vector."""
        return self.place(np.array(values, np.int32))

    def cast(self, x: Value, dtype: str) -> Value:
        """Convert ``x`` to another stored element type by CAST; a constant is converted here."""
        if x.dtype == dtype:
            return x
        if x.const is not None:
            return self.constant(x.const.astype(np.dtype(dtype)), dtype)
        types = {"in_data_type": x.dtype.upper(), "out_data_type": dtype.upper()}
        return self.emit("CAST", [x], self.like(x, dtype), **types)

    def is_too_narrow(self, code: str, values: Sequence[Value]) -> bool:
        """Check for plain 8- or 16-bit integer operands of an operator that takes only int32."""
        plain = [v for v in values if v.dtype in NARROW and v.quantization is None]
        takes = KERNEL_TYPES[code]
        return "int32" in takes and any(v.dtype not in takes for v in plain)

    def scalar(self, value: float, dtype: str = "float32") -> Value:
        """Return a constant of one element."""
        return self.constant(np.array([value], np.dtype(dtype)))

    def weights(self, array: Array) -> int:
        """Return the tensor of weights in physical order, stored in the requested precision.

        float16 weights are a constant and a DEQUANTIZE, which XNNPACK folds when it packs them.
        """
        array = np.asarray(array, np.float32)
        if self.precision != "fp16" or array.size < FP16_SMALLEST_SIZE:
            return self.place(array)
        key = _view(array)
        if key not in self._halved:
            self._halved[key] = (self._as_fp16(array), array)
        return self._halved[key][0]

    def _as_fp16(self, array: Array) -> int:
        with np.errstate(over="ignore"):
            fp16 = array.astype(np.float16)
        if not np.isfinite(fp16).all():
            return self.place(array)
        full = self.new(array.shape, "float32")
        self.emit("DEQUANTIZE", [self.place(fp16)], full)
        return full.tensor

    def tensor(self, x: Value) -> int:
        """Return the tensor of ``x`` in its layout; a constant is placed."""
        if x.tensor >= 0:
            return x.tensor
        assert x.const is not None
        key = (id(x.const), x.perm, x.dtype)
        if key not in self._placed:
            stored = narrowed(x.const, x.dtype).transpose(x.perm)
            self._placed[key] = (self.place(stored, x.quantization), x.const)
        return self._placed[key][0]

    def place(self, stored: Array, quantization: TensorQuantization | None = None) -> int:
        """Return the tensor of a stored constant; equal small ones share a tensor, as do views of one array.

        A large one stays a view of the model's own array until its bytes are written.
        """
        kind = f"{stored.dtype.name} {quantization}"
        if stored.nbytes <= SHARED_UP_TO_BYTES:
            key: Hashable = (stored.tobytes(), stored.shape, kind)
        else:  # the tensor holds it
            key = (_view(stored), kind)
        if key in self._shared:
            return self._shared[key]
        # Unique: ai-edge-quantizer refuses a file in which two constants have one name.
        number = self._constants[self.name] = self._constants.get(self.name, 0) + 1
        name = f"{self.name}/constant" + (f"_{number}" if number > 1 else "")
        tensor = Tensor(name, stored.shape, stored.dtype.name, data=stored, quantization=quantization)
        index = self.graph.add_tensor(tensor)
        self._shared[key] = index
        return index

    def emit(self, code: str, inputs: Sequence[Operand], out: Value, **options: Any) -> Value:
        """Emit one operator and return its only output."""
        self.emit_many(code, inputs, [out], **options)
        return out

    def emit_many(
        self, code: str, inputs: Sequence[Operand], outputs: Sequence[Value], **options: Any
    ) -> None:
        """Emit one operator. The inputs are taken in the layouts they have.

        Raises:
            Inexpressible: the kernel doesn't take the element type, or so many axes.
        """
        tensors = tuple(-1 if x is None else x if isinstance(x, int) else self.tensor(x) for x in inputs)
        self.emit_op(code, tensors, tuple(out.tensor for out in outputs), options)

    def emit_op(
        self,
        code: str,
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        options: dict[str, Any],
        reason: str = "",
    ) -> None:
        data = self.graph.tensors[inputs[DATA_OPERAND.get(code, 0)]]
        dtype = data.dtype
        is_quantized = dtype in INTEGERS and data.quantization is not None and self.computes_on_integers
        if dtype not in KERNEL_TYPES[code] and not (is_quantized and code in INTEGER_KERNELS):
            takes = ", ".join(sorted(KERNEL_TYPES[code]))
            raise Inexpressible(f"TFLite's {code} supports {takes}, but the data is {dtype}", code="EK1004")
        axes = max(len(self.graph.tensors[tensor].shape) for tensor in (*inputs, *outputs) if tensor >= 0)
        if axes > MOST_AXES and code in LIMITED_KERNELS:
            raise Inexpressible(f"TFLite's {code} supports {MOST_AXES} axes, but the data has {axes}")
        self.graph.add_op(Op(code, inputs, outputs, options, self.name, reason))

    def emit_transpose(self, source: int, order: Sequence[int], target: int, reason: str) -> None:
        """Emit TRANSPOSE; plain kernels take few axes, so axes that stay together are merged for them."""
        shape = self.graph.tensors[source].shape
        if not self.plain or len(order) <= PLAIN_TRANSPOSE_AXES:
            self.emit_op("TRANSPOSE", (source, self.ints(order)), (target,), {}, reason)
            return
        merged, places = layout.merged_axes(shape, order)
        data = self.graph.tensors[source]
        narrow = self.reshape_tensor(source, merged, data.dtype, data.quantization)
        dims = tuple(merged[axis] for axis in places)
        between = self.graph.add_tensor(Tensor(self.name, dims, data.dtype, quantization=data.quantization))
        self.emit_op("TRANSPOSE", (narrow, self.ints(places)), (between,), {}, reason)
        self.emit_reshape(between, target)

    def reshape_tensor(
        self, tensor: int, shape: Shape, dtype: str, quantization: TensorQuantization | None
    ) -> int:
        """Return a tensor with the same bytes and another physical shape."""
        source = self.graph.tensors[tensor]
        if source.producer is not None and self.graph.ops[source.producer].code == "RESHAPE":
            tensor = self.graph.ops[source.producer].inputs[0]
        if self.graph.tensors[tensor].shape == shape:
            return tensor
        key = (tensor, shape)
        if key not in self._reshaped:
            reshaped = self.graph.add_tensor(Tensor(self.name, shape, dtype, quantization=quantization))
            self.emit_reshape(tensor, reshaped)
            self._reshaped[key] = reshaped
        return self._reshaped[key]

    def emit_reshape(self, source: int, target: int) -> None:
        shape = self.graph.tensors[target].shape
        self.emit_op("RESHAPE", (source, self.ints(shape)), (target,), {"new_shape": shape})


def _view(array: Array) -> Hashable:
    """Return the memory and layout that a large array is a view of; layers that share weights share it.

    The address is unique while the array is held."""
    return array.__array_interface__["data"][0], array.strides, array.shape
