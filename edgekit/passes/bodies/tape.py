"""Writes the body of a function, node after node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from edgekit.passes.canonical_opset import CANONICAL_OPSET
from edgekit.target import Array

Operand: TypeAlias = "str | Array"
Attribute = int | float | str | Sequence[int] | Sequence[float]


class Tape:
    """A function under construction. Values are names; the node's inputs are ``i0``, ``i1`` ...

    An array among the operands becomes a constant.
    """

    def __init__(self, node: ir.Node) -> None:
        self._inputs = [f"i{k}" for k in range(len(node.inputs))]
        self._node = node
        self._written: list[onnx.NodeProto] = []

    def __call__(self, op: str, *operands: Operand | None, **attributes: Attribute) -> str:
        """One node with one result: its name."""
        names = ["" if o is None else o if isinstance(o, str) else self.constant(o) for o in operands]
        made = f"v{len(self._written)}"
        node = helper.make_node(op, names, [made])
        node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
        self._written.append(node)
        return made

    def constant(self, array: Array) -> str:
        made = f"v{len(self._written)}"
        tensor = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape))
        self._written.append(helper.make_node("Constant", [], [made], value=tensor))
        return made

    def reshape(self, x: Operand, shape: Sequence[int]) -> str:
        return self("Reshape", x, np.array(shape, np.int64))

    def part(self, x: Operand, axis: int, start: int, stop: int, step: int = 1) -> str:
        """``x[..., start:stop:step, ...]`` along one axis."""
        bounds = [np.array([number], np.int64) for number in (start, stop, axis, step)]
        return self("Slice", x, *bounds)

    def total(self, terms: Sequence[str]) -> str:
        """Their sum, from the left."""
        made = terms[0]
        for term in terms[1:]:
            made = self("Add", made, term)
        return made

    def body(self, *results: str) -> onnx.FunctionProto:
        """The function that gives these."""
        outputs = [f"o{k}" for k in range(len(results))]
        ends = [
            helper.make_node("Identity", [result], [output])
            for result, output in zip(results, outputs, strict=True)
        ]
        imports = [helper.make_opsetid("", CANONICAL_OPSET)]
        return helper.make_function(
            "", self._node.op_type, self._inputs, outputs, [*self._written, *ends], imports
        )
