"""Write an ONNX graph node by node: names for values, constants kept once, large ones in their own file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit.tensors import Array

OPSET, IR_VERSION = 20, 10
"""Of 2023: what every engine here reads; see targets/edgekit_ort/opset_downgrade.py."""
ALIGNMENT = 4096
"""Of a constant in the file of constants, so that engines can map it (ONNX, external data)."""
EXTERNAL_BYTES = 1024
"""Constants from this size on lie in the file of constants."""
CONTRIB = "com.microsoft"


class GraphWriter:
    """A graph being written."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self._small: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def op(self, kind: str, *inputs: str, out: str = "", domain: str = "", **attributes: Any) -> str:
        """Append a node with one output; returns the output's name: ``out``, or one of its own."""
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
        """Append a node with several outputs; returns their names."""
        name = f"{kind}_{len(self.nodes)}"
        outputs = list(out) or ([name] if count == 1 else [f"{name}_{i}" for i in range(count)])
        self.nodes.append(
            helper.make_node(kind, list(inputs), outputs, name=name, domain=domain, **attributes)
        )
        return outputs

    def constant(self, array: Array, name: str = "") -> str:
        """The name of a constant. Without a name it is a small one, kept once for each content."""
        array = np.ascontiguousarray(array) if array.ndim else array
        if not name:
            key = (array.dtype.str, array.shape, array.tobytes())
            name = self._small.setdefault(key, f"c{len(self._small)}")
        self.constants[name] = array
        return name

    def ints(self, *values: int) -> str:
        """An int64 vector."""
        return self.constant(np.array(values, np.int64))

    def number(self, value: float) -> str:
        """A float32 scalar."""
        return self.constant(np.array(value, np.float32))

    def input(self, name: str, dtype: str, shape: Sequence[int | str]) -> str:
        self.inputs.append(_described(name, dtype, shape))
        return name

    def output(self, name: str, dtype: str, shape: Sequence[int | str]) -> str:
        self.outputs.append(_described(name, dtype, shape))
        return name

    def model(self, external: str = "") -> tuple[onnx.ModelProto, bytes]:
        """The model, and the content of its file of constants.

        Args:
            external: Name of the file of constants, beside the model; "": all are in the model.
        """
        data, tensors = bytearray(), []
        for name, array in self.constants.items():
            if not external or array.nbytes < EXTERNAL_BYTES:
                tensors.append(numpy_helper.from_array(array, name))
                continue
            data.extend(bytes(-len(data) % ALIGNMENT))
            tensors.append(_external(name, array, external, len(data)))
            data.extend(array.tobytes())
        graph = helper.make_graph(self.nodes, "decoder", self.inputs, self.outputs, tensors)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="edgekit")
        return model, bytes(data)


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
