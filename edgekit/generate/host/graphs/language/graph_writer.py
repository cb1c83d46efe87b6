"""Write an ONNX graph node by node: names for values, constants kept once, large ones in their own file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from edgekit.generate.host.readers.language.activations import GELU, RELU, SILU
from edgekit.system.scratch_file import ScratchFile
from edgekit.tensor_spec import Array

OPSET, IR_VERSION = 20, 10
"""Of 2023: what every engine here reads; see targets/edgekit_ort/fast_forms.py."""
ALIGNMENT = 4096
"""Of a constant in the file of constants, so that engines can map it (ONNX, external data)."""
EXTERNAL_BYTES = 1024
"""Constants from this size on lie in the file of constants."""
CONTRIB = "com.microsoft"


class GraphWriter:
    """A graph being written. Large constants are on pages of temporary files, not on the heap."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self._scratch = ScratchFile()
        self._small: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def op(self, kind: str, *inputs: str, out: str = "", domain: str = "", **attributes: Any) -> str:
        """Append a node with one output. Return the output's name: ``out``, or a generated one."""
        return self.ops(kind, inputs, 1, (out,) if out else (), domain, **attributes)[0]

    def ops(
        self,
        kind: str,
        inputs: Sequence[str],
        count: int,
        out: Sequence[str] = (),
        domain: str = "",
        **attributes: Any,
    ) -> list[str]:
        """Append a node with several outputs. Return their names."""
        name = f"{kind}_{len(self.nodes)}"
        outputs = list(out) or ([name] if count == 1 else [f"{name}_{i}" for i in range(count)])
        self.nodes.append(
            helper.make_node(kind, list(inputs), outputs, name=name, domain=domain, **attributes)
        )
        return outputs

    def constant(self, array: Array, name: str = "") -> str:
        """Add a constant and return its name. Without a name it is small, and equal ones are stored once."""
        if array.nbytes >= EXTERNAL_BYTES:
            array = self._scratch.keep(array)
        elif array.ndim:
            array = np.ascontiguousarray(array)
        if not name:
            key = (array.dtype.str, array.shape, array.tobytes())
            name = self._small.setdefault(key, f"c{len(self._small)}")
        self.constants[name] = array
        return name

    def ints(self, *values: int) -> str:
        """Add an int64 vector as a constant."""
        return self.constant(np.array(values, np.int64))

    def number(self, value: float) -> str:
        """Add a float32 scalar as a constant."""
        return self.constant(np.array(value, np.float32))

    def activation(self, x: str, kind: str) -> str:
        """Compute an activation of ``edgekit.generate.host.readers.language.activations``."""
        if kind == RELU:
            return self.op("Relu", x)
        if kind == SILU:
            return self.op("Mul", x, self.op("Sigmoid", x))
        if kind == GELU:
            curve = self.op("Erf", self.op("Mul", x, self.number(math.sqrt(0.5))))
        else:
            cube = self.op("Mul", x, self.op("Mul", x, x))
            inner = self.op("Add", x, self.op("Mul", cube, self.number(0.044715)))
            curve = self.op("Tanh", self.op("Mul", inner, self.number(math.sqrt(2 / math.pi))))
        return self.op("Mul", self.op("Mul", x, self.number(0.5)), self.op("Add", curve, self.number(1.0)))

    def input(self, name: str, dtype: str, shape: Sequence[int | str]) -> str:
        self.inputs.append(_described(name, dtype, shape))
        return name

    def output(self, name: str, dtype: str, shape: Sequence[int | str]) -> str:
        self.outputs.append(_described(name, dtype, shape))
        return name

    def model(self, external: str) -> onnx.ModelProto:
        """Return the model. ``external``: file of constants beside it, with what ``write_data`` writes."""
        places = {name: offset for name, offset, _ in self.places()}
        tensors = [
            _external(name, array, external, places[name])
            if name in places
            else numpy_helper.from_array(array, name)
            for name, array in self.constants.items()
        ]
        graph = helper.make_graph(self.nodes, "decoder", self.inputs, self.outputs, tensors)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="edgekit")

    def write_data(self, file: IO[bytes]) -> None:
        """Write the content of the file of constants.

        Raises:
            OSError: the disk is full.
        """
        for name, place, _ in self.places():
            file.seek(place)
            file.write(self.constants[name].reshape(-1).view(np.uint8).data)

    def places(self) -> Iterator[tuple[str, int, int]]:
        """Yield name, offset and size in bytes of each constant in the file of constants."""
        end = 0
        for name, array in self.constants.items():
            if array.nbytes >= EXTERNAL_BYTES:
                end += -end % ALIGNMENT
                yield name, end, array.nbytes
                end += array.nbytes


def _described(name: str, dtype: str, shape: Sequence[int | str]) -> onnx.ValueInfoProto:
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return helper.make_tensor_value_info(name, element, list(shape))


def _external(name: str, array: Array, file: str, offset: int) -> onnx.TensorProto:
    tensor = onnx.TensorProto(name=name, dims=array.shape, data_location=onnx.TensorProto.EXTERNAL)
    tensor.data_type = helper.np_dtype_to_tensor_dtype(array.dtype)
    for key, value in (("location", file), ("offset", offset), ("length", array.nbytes)):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, str(value)
    return tensor


def as_ir(graph: GraphWriter) -> ir.Model:
    """Convert graph and shapes. Large constants stay the writer's arrays: copies would take gigabytes."""
    proto = graph.model(external="constants")
    model = ir.from_proto(onnx.shape_inference.infer_shapes(proto, strict_mode=True, data_prop=True))
    for name, value in model.graph.initializers.items():
        value.const_value = ir.tensor(graph.constants[name], name=name)
    return model
