"""float16 by the types of the graph: chosen nodes compute in float16, with casts around them.

Conv -> Relu -> Conv -> Sigmoid => y        all float32
Cast -> Conv -> Relu -> Conv -> Cast -> Sigmoid => y
        `---- weights and activations in float16 ---'
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

import onnx_ir as ir
from onnx import defs

from edgekit.compiler.model.rewriting import array_of, node_name
from edgekit.diagnostics import Finding

FLOAT, HALF = ir.DataType.FLOAT, ir.DataType.FLOAT16


def set_types(model: ir.Model, chosen: Set[ir.Node]) -> None:
    """Give the chosen nodes float16 inputs, outputs and constants, in place.

    The graph's inputs and outputs keep their types. An input that ONNX only has in float32, like the scales
    of a Resize, stays so.
    """
    types = _Types(model)
    nodes = list(model.graph.all_nodes())
    float32 = {value for node in nodes for value in node.inputs if value is not None and value.dtype == FLOAT}
    for node in nodes:
        fp16 = node in chosen
        for index, value in enumerate(node.inputs):
            if value is not None and value in float32:
                dtype = HALF if fp16 and takes_fp16(node, index) else FLOAT
                node.replace_input_with(index, types.form(value, dtype))
        for index, value in enumerate(node.outputs):
            if fp16 and value.dtype == FLOAT and takes_fp16(node, index, output=True):
                value.type = ir.TensorType(HALF)  # a new one: clones share theirs
                _keep_output(model, types, value)
    for constant in [v for v in model.graph.initializers.values() if not v.uses()]:
        if not constant.is_graph_output():
            model.graph.initializers.pop(str(constant.name))


def takes_fp16(node: ir.Node, index: int, output: bool = False) -> bool:
    """Return whether ONNX allows float16 for an input (or output); it does not for the scales of a Resize."""
    schema = defs.get_schema(node.op_type, 23, "")
    formals = schema.outputs if output else schema.inputs
    return "tensor(float16)" in formals[min(index, len(formals) - 1)].types


@dataclass
class _Types:
    """The float32 and the float16 form of each value, built when first requested."""

    model: ir.Model
    built: dict[tuple[ir.Value, ir.DataType], ir.Value] = field(default_factory=dict)

    def form(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        if value.dtype == dtype:
            return value
        if (value, dtype) not in self.built:
            make = self._constant if value.const_value is not None else self._cast
            self.built[value, dtype] = make(value, dtype)
        return self.built[value, dtype]

    def _constant(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        array = array_of(value)
        assert array is not None
        built = ir.val(f"{value.name}/half", const_value=ir.tensor(array.astype(dtype.numpy())))
        self.model.graph.register_initializer(built)
        return built

    def _cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        name = f"{value.name}/{'half' if dtype == HALF else 'float'}"
        cast = ir.node("Cast", [value], {"to": dtype}, name=name, num_outputs=1)
        built, producer = cast.outputs[0], value.producer()
        built.name, built.type, built.shape = name, ir.TensorType(dtype), value.shape
        graph = self.model.graph
        if producer is None:
            graph.insert_before(graph[0], cast)
        else:
            graph.insert_after(producer, cast)
        return built


def _keep_output(model: ir.Model, types: _Types, value: ir.Value) -> None:
    for index, output in enumerate(model.graph.outputs):
        if output is value:
            name = value.name
            value.name = f"{name}/float16"
            float_output = types.form(value, FLOAT)
            float_output.name = name
            model.graph.outputs[index] = float_output


COMPUTED_NARROWER = "EK1108"


def narrowed_floats(model: ir.Model, target: str) -> list[Finding]:
    """Return a warning that names the first float64 input or node and counts the others, if there is one."""
    wide = [(str(value.name), "") for value in model.graph.inputs if value.dtype == ir.DataType.DOUBLE]
    for node in model.graph:
        if any(value.dtype == ir.DataType.DOUBLE for value in node.outputs):
            wide.append((node_name(node), node.op_type))
    if not wide:
        return []
    more = f"; so are {len(wide) - 1} more" if len(wide) > 1 else ""
    reason = f"it is float64, but computed in float32{more}"
    return [Finding(COMPUTED_NARROWER, "warning", target, *wide[0], reason, "export the model in float32")]
