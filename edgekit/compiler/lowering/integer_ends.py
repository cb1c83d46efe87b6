"""Q/DQ graph with integer inputs and outputs, for chips that compute on integers only.

    x, float -> QuantizeLinear -> DequantizeLinear -> ...          =>   x, int8 -> DequantizeLinear -> ...
    ... -> QuantizeLinear -> DequantizeLinear -> y, float          =>   ... -> QuantizeLinear -> y, int8

The names stay. The runner quantizes its inputs and dequantizes its outputs, by the scales that this module
returns.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from edgekit.compiler.model.rewriting import array_of, free_name, input_of
from edgekit.compiler.passes.remove_dead_code import remove_dead_code
from edgekit.tensor_spec import Json

STORED = (ir.DataType.INT8, ir.DataType.UINT8)


@dataclass(frozen=True)
class IntegerEnds:
    """A model with integer inputs and outputs.

    Attributes:
        model: A copy; the model itself if no end can be an integer.
        inputs: Input -> its scale and zero point; those that stay floats are absent.
        outputs: The same of outputs.
    """

    model: ir.Model
    inputs: dict[str, tuple[float, int]]
    outputs: dict[str, tuple[float, int]]

    def described(self, name: str) -> dict[str, Json]:
        """Return ``scale`` and ``zero_point`` of an end, for an artifact's options; empty for a float."""
        quantization = self.inputs.get(name) or self.outputs.get(name)
        return {} if quantization is None else {"scale": quantization[0], "zero_point": quantization[1]}


def with_integer_ends(model: ir.Model) -> IntegerEnds:
    """Replace each input and output that is quantized by one scale anyway by its integers."""
    copy = model.clone()
    inputs = {str(v.name): quantization for v in copy.graph.inputs if (quantization := _integer_input(v))}
    outputs = {}
    for index, value in enumerate(copy.graph.outputs):
        if quantization := _integer_output(copy, index, value):
            outputs[str(copy.graph.outputs[index].name)] = quantization
    if not inputs and not outputs:
        return IntegerEnds(model, {}, {})
    remove_dead_code(copy)
    return IntegerEnds(copy, inputs, outputs)


def _integer_input(value: ir.Value) -> tuple[float, int] | None:
    readers = [use.node for use in value.uses()]
    if value.dtype != ir.DataType.FLOAT or not readers or value.is_graph_output():
        return None
    if any(node.op_type != "QuantizeLinear" or node.outputs[0].is_graph_output() for node in readers):
        return None
    scales = {_one_scale(node) for node in readers}
    dtypes = {node.outputs[0].dtype for node in readers}
    (quantization, *others), (dtype, *other_dtypes) = scales, dtypes
    if quantization is None or others or other_dtypes or dtype not in STORED:
        return None
    value.type = ir.TensorType(dtype)  # not value.dtype: copies share the type
    for node in readers:
        node.outputs[0].replace_all_uses_with(value)
    return quantization


def _integer_output(model: ir.Model, index: int, value: ir.Value) -> tuple[float, int] | None:
    node = value.producer()
    stored = node.inputs[0] if node is not None and node.op_type == "DequantizeLinear" else None
    if node is None or stored is None or value.dtype != ir.DataType.FLOAT:
        return None
    quantization = _one_scale(node)
    is_boundary = stored.is_graph_output() or stored.is_graph_input() or stored.producer() is None
    if quantization is None or is_boundary or stored.dtype not in STORED or array_of(stored) is not None:
        return None
    name = str(value.name)
    value.name = free_name(model, f"{name}/float")
    model.graph.outputs[index] = stored
    stored.name = name
    stored.metadata_props.update(value.metadata_props)
    return quantization


def _one_scale(node: ir.Node) -> tuple[float, int] | None:
    """Return scale and zero point of a Q or DQ node; None unless constant and per tensor."""
    scale, zero_point = array_of(input_of(node, 1)), array_of(input_of(node, 2))
    if scale is None or scale.size != 1 or (zero_point is not None and zero_point.size != 1):
        return None
    return float(scale.reshape(())), 0 if zero_point is None else int(zero_point.reshape(()))
