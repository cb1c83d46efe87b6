"""Builds the graph of a decomposition in the canonical opset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from edgekit.tensor_spec import Array

Operand: TypeAlias = "str | Array"
Body = Callable[[ir.Node], "onnx.GraphProto | None"]
F = TypeVar("F", bound=Body)
Attribute = int | float | str | Sequence[int] | Sequence[float]


BODIES: dict[tuple[str, str], Body] = {}
"""(Domain, op) -> its decomposition."""


def decomposes(*ops: str, domain: str = "") -> Callable[[F], F]:
    """Register the decorated function as the decomposition of these operators."""

    def register(function: F) -> F:
        BODIES.update({(domain, op): function for op in ops})
        return function

    return register


class Tape:
    """A graph under construction. Values are names; the node's inputs are ``i0``, ``i1`` ...

    Array operands become weights; equal ones are shared.
    """

    def __init__(self, node: ir.Node) -> None:
        self._node = node
        self._written: list[onnx.NodeProto] = []
        self._weights: dict[tuple[bytes, str, tuple[int, ...]], onnx.TensorProto] = {}

    def __call__(self, op: str, *operands: Operand | None, **attributes: Attribute) -> str:
        """Add a node with one output; returns its name."""
        names = ["" if o is None else o if isinstance(o, str) else self.constant(o) for o in operands]
        result = f"v{len(self._written)}"
        node = helper.make_node(op, names, [result])
        node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
        self._written.append(node)
        return result

    def constant(self, array: Array) -> str:
        key = (array.tobytes(), array.dtype.name, array.shape)
        if key not in self._weights:
            result = np.ascontiguousarray(array).reshape(array.shape)
            self._weights[key] = numpy_helper.from_array(result, f"c{len(self._weights)}")
        return self._weights[key].name

    def reshape(self, x: Operand, shape: Sequence[int]) -> str:
        return self("Reshape", x, np.array(shape, np.int64))

    def part(self, x: Operand, axis: int, start: int, stop: int, step: int = 1) -> str:
        """Slice ``x[..., start:stop:step, ...]`` along one axis."""
        bounds = [np.array([number], np.int64) for number in (start, stop, axis, step)]
        return self("Slice", x, *bounds)

    def total(self, terms: Sequence[str]) -> str:
        result = terms[0]
        for term in terms[1:]:
            result = self("Add", result, term)
        return result

    def body(self, *results: str | None) -> onnx.GraphProto:
        """Return the graph with these outputs as ``o0``, ``o1`` ..., without those that are None, which
        nothing may read; types and shapes are not inferred."""
        ends = [
            helper.make_node("Identity", [result], [f"o{k}"])
            for k, result in enumerate(results)
            if result is not None
        ]
        graph = onnx.GraphProto(name=self._node.op_type)
        graph.node.extend([*self._written, *ends])
        graph.initializer.extend(self._weights.values())
        return graph
