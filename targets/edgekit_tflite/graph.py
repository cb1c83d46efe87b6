"""A .tflite program before it is bytes: tensors, operators, and what nobody reads removed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from edgekit.tensor_spec import Array


@dataclass(frozen=True)
class TensorQuantization:
    """real = scale * (stored - zero_point); one scale and zero point, or one for each index of ``axis``.

    ``axis`` is the physical axis.
    """

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int = 0


@dataclass
class Tensor:
    """One tensor.

    Attributes:
        name: Name for people; need not be unique.
        data: The content of a constant, else None.
        producer: Index of the operator that computes it, or None.
        readers: Number of operator inputs that read it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    data: Array | None = None
    quantization: TensorQuantization | None = None
    producer: int | None = None
    readers: int = 0


@dataclass(frozen=True)
class Op:
    """One operator.

    Attributes:
        code: Name in the schema's BuiltinOperator, e.g. ``CONV_2D``.
        inputs: Tensor indices; -1 is an optional input left out.
        options: Fields of the operator's options table, in snake case; enum values by name.
        node: Name of the ONNX node it comes from.
        reason: For an operator that only moves data, why it is needed.
    """

    code: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    node: str = ""
    reason: str = ""


@dataclass
class Graph:
    """One subgraph: operators in the order in which they run."""

    tensors: list[Tensor] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)

    def add_tensor(self, tensor: Tensor) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def add_op(self, op: Op) -> None:
        for i in op.inputs:
            if i >= 0:
                self.tensors[i].readers += 1
        for o in op.outputs:
            self.tensors[o].producer = len(self.ops)
        self.ops.append(op)

    def pruned(self) -> Graph:
        """Return the same program without unread operators and unused tensors."""
        needed = set(self.outputs)
        ops: list[Op] = []
        for op in reversed(self.ops):
            if needed.intersection(op.outputs):
                needed.update(i for i in op.inputs if i >= 0)
                ops.append(op)
        ops.reverse()
        for op in ops:  # an op with several outputs declares them all, also the unread ones
            needed.update(op.outputs)
        needed.update(self.inputs)
        graph = Graph()
        new_indices = {-1: -1}
        for old, tensor in enumerate(self.tensors):
            if old in needed:
                new_indices[old] = graph.add_tensor(replace(tensor, producer=None, readers=0))
        for op in ops:
            graph.add_op(
                replace(
                    op,
                    inputs=tuple(new_indices[i] for i in op.inputs),
                    outputs=tuple(new_indices[o] for o in op.outputs),
                )
            )
        graph.inputs = [new_indices[i] for i in self.inputs]
        graph.outputs = [new_indices[o] for o in self.outputs]
        return graph
