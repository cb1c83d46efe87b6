"""ONNX graph under construction: the builder for readers of operators.

Every tensor keeps TFLite's order of axes, N, H, W, C for images; an operator that ONNX has for N, C, H, W
is between two Transposes, which passes and engines remove. A tensor of integers with a scale is a float in
ONNX: it goes through QuantizeLinear and DequantizeLinear where it is produced.

    CONV_2D  int8     before
    DequantizeLinear -> Conv -> Relu -> QuantizeLinear -> DequantizeLinear     after
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit.errors import ModelError
from edgekit.tensor_spec import Array
from edgekit_tflite.graph import Graph, Op, TensorQuantization
from edgekit_tflite.importer.element_types import NUMPY, SCALED, element_type
from edgekit_tflite.importer.file import TfliteFile, end_names, unique_names

OPSET, IR_VERSION = 20, 9
OPSET_16_BIT, IR_VERSION_16_BIT = 21, 10
"""QuantizeLinear has 16 bits since opset 21; of that opset an optimization of ONNX Runtime 1.31 refuses some
graphs with pairs, so it is taken where it is needed only."""
OPSET_BIT_CAST, IR_VERSION_BIT_CAST = 26, 13  # the first with BitCast
MAX_INTS = 4096
"""Of a constant that is an argument, such as axes or pads."""
MAX_NODES = 200_000
MAX_COPIES = 64
"""What the constants that are made of a file's may hold, in sizes of the file."""
SMALL_BYTES = 16 << 20
"""And anyway."""
SHARED_UP_TO_BYTES = 256
"""Equal constants up to this size are stored once."""
TO_NCHW, TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)


class UnreadableError(ModelError):
    """Error for an operator that cannot be expressed in ONNX, or not with these options."""

    def __init__(self, op: Op, reason: str) -> None:
        super().__init__(f"{op.node}: {reason}")


class OnnxGraph:
    """Graph that grows by one operator at a time; ``op`` is the one being read."""

    def __init__(self, file: TfliteFile, size_bytes: int) -> None:
        self.source: Graph = file.graph
        self.variables = file.variables
        self.notes: dict[str, None] = {}
        self.op: Op = Op("", (), ())
        self._prefix = "input"
        self._names = unique_names(self.source)
        self._use_counts = Counter(dict.fromkeys((*self._names, *end_names(self.source)[1]), 1))
        self._constant_names = {
            i: f"{name}/constant" if i in self.source.outputs else name for i, name in enumerate(self._names)
        }
        self._nodes: list[onnx.NodeProto] = []
        self._made_by: dict[str, onnx.NodeProto] = {}
        self._initializers: dict[str, Array] = {}
        self._shared: dict[Hashable, str] = {}
        self._contents = {i: t.data for i, t in enumerate(self.source.tensors) if t.data is not None}
        self._values: dict[int, str] = {}
        self._stored: dict[int, str] = {}
        self._transposed: dict[tuple[int, tuple[int, ...]], str] = {}
        self._is_16_bit = False
        self.casts_bits = False
        self._budget_bytes = MAX_COPIES * size_bytes + SMALL_BYTES
        for i in self.source.inputs:
            self._bind_input(i)

    def begin(self, index: int, op: Op) -> None:
        """Make this the operator being read."""
        self.op, self._prefix = op, f"{op.options.get('custom_code', op.code)}_{index}"
        for i in (*op.inputs, *op.outputs):
            dtype = self.dtype(i) if i >= 0 else "bool"
            if dtype not in NUMPY or (dtype == "int4" and i not in self._contents):
                raise UnreadableError(op, f"{self._names[i]} is {dtype}, which is not supported")

    # What an operator reads

    def shape(self, i: int) -> tuple[int, ...]:
        return self.source.tensors[i].shape

    def dtype(self, i: int) -> str:
        """Return the stored element type."""
        return self.source.tensors[i].dtype

    def quantization(self, i: int) -> TensorQuantization | None:
        """Return the quantization of integers that represent floats; None for floats and plain integers."""
        tensor = self.source.tensors[i]
        scaled = tensor.dtype in SCALED or (i in self._contents and tensor.dtype in ("int32", "int64"))
        return tensor.quantization if scaled else None

    def content(self, i: int) -> Array | None:
        """Return a constant as it is stored; None for anything else."""
        return self._contents.get(i)

    def constant_floats(self, i: int) -> Array | None:
        """Return a constant in real numbers; None for anything else."""
        content, quantization = self.content(i), self.quantization(i)
        return content if content is None or quantization is None else _dequantized(content, quantization)

    def ints(self, i: int) -> list[int]:
        """Return a constant of integers, such as axes.

        Raises:
            UnreadableError: the model computes it.
        """
        content = self.content(i)
        if content is None or content.dtype.kind not in "iu" or content.size > MAX_INTS:
            raise UnreadableError(self.op, f"its input {self._names[i]} must be a constant of integers")
        return [int(n) for n in content.ravel()]

    def integer(self, i: int) -> int:
        """Return a constant of one integer, such as an axis.

        Raises:
            UnreadableError: it is not a constant of one integer.
        """
        numbers = self.ints(i)
        if len(numbers) != 1:
            raise UnreadableError(self.op, f"its input {self._names[i]} is {numbers}; it must be one number")
        return numbers[0]

    def value(self, i: int) -> str:
        """Return the ONNX value of a tensor, in real numbers if it has a scale."""
        if i < 0:
            raise UnreadableError(self.op, "a required input is missing")
        if i in self.variables and i not in self._values:
            raise UnreadableError(
                self.op, f"it keeps {self._names[i]} between runs, which ONNX does not support"
            )
        if i not in self._values:
            self._values[i] = self._constant_value(i)
        return self._values[i]

    def stored(self, i: int) -> str:
        """Return the ONNX value of a tensor as it is stored, integers as integers."""
        value = self.value(i)
        if self.quantization(i) is None:
            return value
        if i not in self._stored:
            content = self.content(i)
            assert content is not None
            self._stored[i] = self.constant(content, self._constant_names[i])
        return self._stored[i]

    def weights(self, i: int, perm: Sequence[int]) -> str:
        """Return ``value``, transposed; a constant is transposed here."""
        content, quantization = self.content(i), self.quantization(i)
        if len(self.shape(i)) != len(perm):
            raise UnreadableError(
                self.op, f"its weights have {len(self.shape(i))} dimensions; {len(perm)} are supported"
            )
        if content is None:
            return self.node("Transpose", [self.value(i)], perm=perm)
        key = (i, tuple(perm))
        if key not in self._transposed:
            transposed = content.transpose(perm)
            stored = self._initializer(transposed, f"{self._names[i]}/{''.join(map(str, perm))}")
            if quantization is not None:
                axis = key[1].index(quantization.axis)
                stored = self._dequantize(stored, transposed, quantization, axis)
            self._transposed[key] = stored
        return self._transposed[key]

    def is_left_out(self, position: int) -> bool:
        """Check whether an optional input of the operator is left out."""
        return position >= len(self.op.inputs) or self.op.inputs[position] < 0

    def is_dynamic_range(self, data: int, weights: int) -> bool:
        """Check whether floats meet integer weights: TFLite's kernels quantize the floats at run time."""
        return self.dtype(data) == "float32" and self.quantization(weights) is not None

    # What an operator makes

    def node(self, op_type: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Add a node with one output, which is returned."""
        return self.nodes(op_type, inputs, 1, **attributes)[0]

    def nodes(self, op_type: str, inputs: Sequence[str], count: int, **attributes: Any) -> list[str]:
        """Add a node with ``count`` outputs, which are returned."""
        if len(self._nodes) >= MAX_NODES:
            raise UnreadableError(self.op, f"the ONNX model would have more than {MAX_NODES} nodes")
        name = self._new(f"{self._prefix}/{op_type}")
        outputs = [name] if count == 1 else [f"{name}/{n}" for n in range(count)]
        node = helper.make_node(op_type, list(inputs), outputs, name, **attributes)
        self._nodes.append(node)
        self._made_by.update(dict.fromkeys(outputs, node))
        return outputs

    def constant(self, array: Any, name: str = "constant") -> str:
        """Add an initializer; equal small ones are shared."""
        array = np.asarray(array)
        if array.nbytes > SHARED_UP_TO_BYTES:
            return self._initializer(array, name)
        key = (array.tobytes(), array.shape, array.dtype.name)
        if key not in self._shared:
            self._shared[key] = self._initializer(array, name)
        return self._shared[key]

    def int64(self, values: Sequence[int] | int) -> str:
        return self.constant(np.array(values, np.int64))

    def set(self, i: int, value: str) -> None:
        """Record ``value``, in real numbers, as the content of tensor ``i``."""
        quantization = self.quantization(i)
        if quantization is None:
            self._values[i] = self._renamed(value, self._names[i])
            return
        if len(quantization.scale) > 1:
            raise UnreadableError(
                self.op, f"it makes {self._names[i]}, with a scale for each of axis {quantization.axis}"
            )
        scale, zero_point = self._parameters(quantization, self.dtype(i))
        stored = self.node("QuantizeLinear", [value, scale, zero_point])
        self._stored[i] = self._renamed(stored, self._names[i])
        self._values[i] = self.node("DequantizeLinear", [self._stored[i], scale, zero_point])

    def set_stored(self, i: int, value: str) -> None:
        """Record ``value`` as the content of tensor ``i``, integers as they are stored."""
        quantization = self.quantization(i)
        if quantization is None:
            self.set(i, value)
            return
        self._stored[i] = self._renamed(value, self._names[i])
        parameters = self._parameters(quantization, self.dtype(i))
        self._values[i] = self.node("DequantizeLinear", [self._stored[i], *parameters])

    def set_constant(self, i: int, content: Array) -> None:
        """Record tensor ``i`` as a constant with this stored content."""
        self._spend(content)
        self._contents[i] = content

    def nchw(self, value: str) -> str:
        return self.node("Transpose", [value], perm=TO_NCHW)

    def nhwc(self, value: str) -> str:
        return self.node("Transpose", [value], perm=TO_NHWC)

    def reshape(self, value: str, shape: Sequence[int]) -> str:
        # allowzero: 0 is 0, not "as it was".
        zero = {"allowzero": 1} if 0 in shape else {}
        return self.node("Reshape", [value, self.int64(list(shape))], **zero)

    def cast(self, value: str, dtype: str) -> str:
        return self.node("Cast", [value], to=element_type(dtype))

    def scalar(self, number: float, dtype: str) -> str:
        """Return a constant of rank 0; in real numbers for a tensor with a scale."""
        kind = "float32" if dtype in SCALED else NUMPY[dtype]
        return self.constant(np.array(number, kind))

    def number(self, number: float, i: int) -> str:
        """Return a constant of rank 0 in the type of ``value(i)``."""
        real = self.quantization(i) is not None
        return self.constant(np.array(number, "float32" if real else NUMPY[self.dtype(i)]))

    # The whole

    def model(self, metadata: dict[str, str]) -> bytes:
        """Return the ONNX file, without the nodes that no output needs."""
        outputs = self._outputs()
        needed, nodes = {value.name for value in outputs}, []
        for node in reversed(self._nodes):
            if needed.intersection(node.output):
                needed.update(node.input)
                nodes.append(node)
        graph = helper.make_graph(
            nodes[::-1],
            "tflite",
            [self._info(i, self._names[i]) for i in self.source.inputs],
            outputs,
            [numpy_helper.from_array(a, n) for n, a in self._initializers.items() if n in needed],
        )
        opset, ir_version = (OPSET_16_BIT, IR_VERSION_16_BIT) if self._is_16_bit else (OPSET, IR_VERSION)
        if self.casts_bits:
            opset, ir_version = OPSET_BIT_CAST, IR_VERSION_BIT_CAST
        imports = [helper.make_opsetid("", opset)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=ir_version)
        model.producer_name = "EdgeKit"
        helper.set_model_props(model, metadata)
        data: bytes = model.SerializeToString(deterministic=True)
        return data

    def _outputs(self) -> list[onnx.ValueInfoProto]:
        self.op, self._prefix = Op("", (), (), node="an output"), "output"
        infos = []
        for i, name in zip(self.source.outputs, end_names(self.source)[1], strict=True):
            value = self.stored(i)
            if value != name:  # an input, a constant or another output too: it has to be a copy
                self._nodes.append(helper.make_node("Identity", [value], [name], f"{name}/Identity"))
            infos.append(self._info(i, name))
        return infos

    def _info(self, i: int, name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, element_type(self.dtype(i)), self.shape(i))

    def _bind_input(self, i: int) -> None:
        name, quantization, dtype = self._names[i], self.quantization(i), self.dtype(i)
        if dtype not in NUMPY or dtype == "int4":
            raise ModelError(f"input {name} is {dtype}, which is not supported")
        self._values[i] = self._stored[i] = name
        if quantization is not None:
            if len(quantization.scale) > 1:
                raise ModelError(f"input {name} has a scale for each of its axis {quantization.axis}")
            parameters = self._parameters(quantization, dtype)
            self._values[i] = self.node("DequantizeLinear", [name, *parameters])

    def _constant_value(self, i: int) -> str:
        content, quantization = self.content(i), self.quantization(i)
        if content is None:
            raise UnreadableError(self.op, f"it reads {self._names[i]}, which no operator produces")
        if quantization is None:
            return self.constant(content, self._constant_names[i])
        if content.dtype == np.int64:  # the bias of 16-bit activations; DequantizeLinear takes up to 32
            return self.constant(_dequantized(content, quantization), self._constant_names[i])
        stored = self.constant(content, self._constant_names[i])
        self._stored[i] = stored
        return self._dequantize(stored, content, quantization, quantization.axis)

    def _dequantize(self, stored: str, content: Array, quantization: TensorQuantization, axis: int) -> str:
        scale = np.array(quantization.scale, np.float32)
        points = np.array(quantization.zero_point).astype(content.dtype)
        one = len(scale) == 1
        inputs = [stored, self.constant(scale[0] if one else scale)]
        if content.dtype != np.int32:  # which has none
            inputs.append(self.constant(points[0] if one else points))
        self._is_16_bit |= content.dtype.itemsize == 2
        return self.node("DequantizeLinear", inputs, **({} if one else {"axis": axis}))

    def _parameters(self, quantization: TensorQuantization, dtype: str) -> tuple[str, str]:
        limits = np.iinfo(NUMPY[dtype])
        if not limits.min <= quantization.zero_point[0] <= limits.max:
            raise UnreadableError(
                self.op, f"the zero point {quantization.zero_point[0]} is not a valid {dtype}"
            )
        self._is_16_bit |= limits.bits == 16
        scale = np.array(quantization.scale[0], np.float32)
        return self.constant(scale), self.constant(np.array(quantization.zero_point[0], NUMPY[dtype]))

    def _initializer(self, array: Array, name: str) -> str:
        is_free = name in self._use_counts and name not in self._initializers and name not in self._made_by
        name = name if is_free and self._use_counts[name] == 1 else self._new(name)
        self._spend(array)
        self._initializers[name] = np.ascontiguousarray(array) if array.ndim else array
        return name

    def _spend(self, array: Array) -> None:
        self._budget_bytes -= array.nbytes
        if self._budget_bytes < 0:
            raise UnreadableError(self.op, f"its constants grow to more than {MAX_COPIES} times the file")

    def _new(self, name: str) -> str:
        candidate = name
        while candidate in self._use_counts:
            candidate = f"{name}_{self._use_counts[name]}"
            self._use_counts[name] += 1
        self._use_counts[candidate] = 1
        return candidate

    def _renamed(self, value: str, name: str) -> str:
        """Give the value the tensor's name, if the last node produced it; return its name."""
        producer = self._made_by.get(value)
        if producer is None or producer is not self._nodes[-1] or name in self._made_by:
            return value
        producer.output[list(producer.output).index(value)] = name
        self._made_by[name] = self._made_by.pop(value)
        return name


def _dequantized(content: Array, quantization: TensorQuantization) -> Array:
    shape = [1] * content.ndim
    if len(quantization.scale) > 1:
        shape[quantization.axis] = -1
    scale = np.array(quantization.scale).reshape(shape)
    real = (content.astype(np.float64) - np.array(quantization.zero_point).reshape(shape)) * scale
    floats: Array = real.astype(np.float32)
    return floats
