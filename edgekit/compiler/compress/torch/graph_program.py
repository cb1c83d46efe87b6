"""Table of ONNX operators in PyTorch, and the builder that makes steps of a graph's nodes.

A function of the table decodes its node once, from static shapes and constants, and emits the step that runs
for each sample. Its tensors have the graph's own shapes:
:class:`~edgekit.compiler.compress.torch.onnx_module.OnnxModule` maps it over a batch (``torch.func.vmap``).
So a Reshape to ``1x64`` or heads of attention are right for any batch; no axis must be the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from edgekit.compiler.lowering.op_table import LoweredNode, OpTable
from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.rewriting import array_of
from edgekit.tensor_spec import Array

Tensor = Any
"""A ``torch.Tensor``; PyTorch's types are not loaded by the type checker."""


@dataclass(frozen=True, eq=False)
class Value:
    """Value of the graph, for the functions of the table.

    Attributes:
        dtype: Numpy name of the type, e.g. ``float32``.
        const: Array of a constant when the module was made; None if the model computes the value.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    const: Array | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)


Values = tuple[Value, ...]
"""Outputs of a node."""


@dataclass(frozen=True, eq=False)
class NodeStep:
    """Step of one node: ``outputs = function(*inputs)``.

    Attributes:
        inputs: Names of values in the order of the node's inputs; None for an omitted one.
        function: Function of a tensor, or None, for each input; returns a tensor, or a tuple of them.
    """

    inputs: tuple[str | None, ...]
    function: Callable[..., Any]
    outputs: tuple[str, ...]
    op_type: str


class GraphProgram(LoweredNode):
    """Builder for the op table: it makes a step of each node.

    Attributes:
        steps: Steps in the order of execution.
        constants: Name -> array that the steps read in addition to the graph's values.
    """

    def __init__(self) -> None:
        self.steps: list[NodeStep] = []
        self._values: dict[str, Value] = {}

    def begin(self, node: ir.Node) -> None:
        self.node = node

    def handle(self, value: ir.Value) -> Value:
        name = str(value.name)
        if name not in self._values:
            self._values[name] = _described(value, array_of(value))
        return self._values[name]

    def bind(self, value: ir.Value, handle: Value) -> None:
        self._values[str(value.name)] = handle

    def bind_unknown(self, value: ir.Value) -> None:
        self._values[str(value.name)] = _described(value, None)

    def emit(self, function: Callable[..., Any], *inputs: Value | None, outputs: int = 1) -> Values:
        """Append the step of the current node.

        Args:
            outputs: Number of the node's outputs that it makes.
        """
        assert self.node is not None
        values = tuple(_described(value, None) for value in self.node.outputs[:outputs])
        names = tuple(None if value is None else value.name for value in inputs)
        self.steps.append(NodeStep(names, function, tuple(v.name for v in values), self.node.op_type))
        return values

    def out(self, index: int = 0) -> Value:
        assert self.node is not None
        return _described(self.node.outputs[index], None)

    @property
    def output_count(self) -> int:
        assert self.node is not None
        return len(self.node.outputs)


def _described(value: ir.Value, const: Array | None) -> Value:
    dtype = "" if value.dtype is None else value.dtype.name.lower()
    dtype = {"float": "float32", "double": "float64"}.get(dtype, dtype)
    return Value(str(value.name or ""), static_dims(value) or (), dtype, const)


lower = OpTable[Value]("PyTorch")
"""``ops_*.py`` fill it."""

DTYPES: Mapping[str, Any] = {
    "float32": torch.float32,
    "float16": torch.float16,
    "float64": torch.float64,
    "bool": torch.bool,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
}


def constant(array: Array) -> Tensor:
    return torch.from_numpy(np.array(array))


def is_float(value: Value) -> bool:
    """Return whether gradients flow through a value."""
    return value.dtype.startswith("float")
