"""Plan -> the canonical graph with Q/DQ pairs, the form that target compilers read.

Every value has a shape and a type, the graph's inputs and outputs keep their names, and unused float weights
are removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.rewriting import array_of, equal_weight, input_of, only_consumer
from edgekit.compiler.quantize.numerics import quantize
from edgekit.compiler.quantize.placement.kernels import node_name, rule_of
from edgekit.compiler.quantize.placement.zero_centring import (
    absorbs_offset,
    bias_for,
    centred,
    moves_data,
    offset_of,
)
from edgekit.compiler.quantize.recipe import Affine, QuantizationPlan, QuantizedWeights
from edgekit.target.quant_rules import Rules
from edgekit.tensor_spec import Array


def emit(model: ir.Model, plan: QuantizationPlan, rules: Rules, float_weights: bool = False) -> ir.Model:
    """Return a copy of the model quantized according to the plan, in standard ONNX operators.

    Args:
        rules: The target's rules; they determine how biases are stored.
        float_weights: Leave weights and biases float, with pairs at the activations only, for training.

    Returns:
        A model of opset 23, with the original's signature.

    Raises:
        ValueError: the plan lacks the weights of a node, or is for another model.
    """
    copy = model.clone()
    writer = _Writer(copy, plan, rules)
    nodes = {node_name(node): node for node in copy.graph}
    unknown = sorted((plan.nodes | set(plan.weights)) - set(nodes))
    if unknown:
        raise ValueError(f"the plan is for another model: it names {', '.join(unknown[:3])}")
    for name in plan.nodes:
        rule = rule_of(nodes[name], rules)
        if rule is not None and rule.weight is not None and name not in plan.weights and not float_weights:
            raise ValueError(f"the plan has no weights for {name}")
    for name, node in nodes.items():  # before the pairs are added: rules match a node by its inputs
        if name in plan.weights and not float_weights:
            writer.store_weights(node, plan.weights[name])
    for value in list(_values(copy)):
        if str(value.name) in plan.activations:
            writer.store(value, plan.activations[str(value.name)])
    for name, value in list(copy.graph.initializers.items()):
        if not value.uses() and not value.is_graph_output() and not value.is_graph_input():
            del copy.graph.initializers[name]
    return copy


def _values(model: ir.Model) -> Iterator[ir.Value]:
    yield from model.graph.inputs
    yield from (value for value in model.graph.initializers.values() if not value.is_graph_input())
    for node in model.graph:
        yield from node.outputs


class _Writer:
    def __init__(self, model: ir.Model, plan: QuantizationPlan, rules: Rules) -> None:
        self._graph = model.graph
        self._scales: dict[int, tuple[ir.Value, ir.Value, Affine]] = {}
        self._plan = plan
        self._rules = rules
        self._by_shape: dict[tuple[object, ...], list[ir.Value]] = {}
        for value in model.graph.initializers.values():
            if value.shape is not None:
                self._by_shape.setdefault(value.shape.dims, []).append(value)
        self._used_names = {str(value.name) for value in _values(model)} | set(model.graph.initializers)

    def store(self, value: ir.Value, affine: Affine) -> None:
        name, array, producer = str(value.name), array_of(value), value.producer()
        producer_is_int8 = producer is not None and node_name(producer) in self._plan.nodes
        readers = [use for use in value.uses() if producer_is_int8 or node_name(use.node) in self._plan.nodes]
        if array is not None:
            if not readers:
                return
            stored = self._constant(f"{name}/stored", quantize(array, affine))
            real = self._dequantized(stored, affine, name, before=readers[0].node)
        else:
            is_data_movement = self._moves_data(producer)
            if producer_is_int8 and value.is_graph_output():
                value.name = self._unique_name(
                    f"{name}/float"
                )  # the graph output keeps its name, so the float value gets a new one
            constant, source = offset_of(affine, self._rules), value
            affine = centred(affine) if constant else affine
            if constant and not is_data_movement:  # data movement keeps the offset of its input
                source = self._add_number(value, -constant, f"{name}/centred", after=producer)
            inputs = [source, *self._scale(affine, name)]
            attributes = {} if affine.axis is None else {"axis": affine.axis}
            node = ir.node("QuantizeLinear", inputs, attributes=attributes)
            stored = self._named(node, f"{name}/quantized", ir.DataType[affine.dtype.upper()], value.shape)
            self._insert(node, after=source.producer())
            real = self._dequantized(stored, affine, name, after=node)
            is_int8_output = producer_is_int8 and value.is_graph_output()
            if constant:
                absorbing = [use for use in readers if self._absorbs_offset(use.node)]
                for use in absorbing:
                    use.node.replace_input_with(use.idx, real)
                readers = [use for use in readers if use not in absorbing]
                if readers or is_int8_output:
                    real = self._add_number(real, constant, f"{name}/whole", after=real.producer())
            if is_int8_output:
                self._graph.outputs[self._graph.outputs.index(value)] = real
                real.name = name
        for use in readers:
            use.node.replace_input_with(use.idx, real)

    def _absorbs_offset(self, node: ir.Node) -> bool:
        return (node_name(node) in self._plan.weights and absorbs_offset(node)) or self._moves_data(node)

    def _moves_data(self, node: ir.Node | None) -> bool:
        if node is None or node_name(node) not in self._plan.nodes:
            return False
        rule = rule_of(node, self._rules)
        return rule is not None and rule.output == "inputs" and moves_data(node)

    def _add_number(self, value: ir.Value, number: float, name: str, after: ir.Node | None) -> ir.Value:
        node = ir.node("Add", [value, self._constant(f"{name}/constant", np.array(number, np.float32))])
        total = self._named(node, name, ir.DataType.FLOAT, value.shape)
        self._insert(node, after)
        return total

    def store_weights(self, node: ir.Node, weights: QuantizedWeights) -> None:
        rule = rule_of(node, self._rules)
        if rule is None or rule.weight is None:
            raise ValueError(f"{self._rules.target} has no rule for the weights of {node_name(node)}")
        name, affine = node_name(node), weights.affine
        stored = self._constant(f"{name}/weights", weights.stored)
        node.replace_input_with(
            rule.weight, self._dequantized(stored, affine, f"{name}/weights", before=node)
        )
        source = self._plan.activations.get(str(node.inputs[0].name)) if node.inputs[0] is not None else None
        constant = offset_of(source, self._rules) if source is not None and absorbs_offset(node) else 0.0
        if constant:
            weights = replace(weights, bias=bias_for(node, weights, constant))
        if weights.bias is None:
            return
        if rule.bias is None:
            self._set_float_bias(node, weights.bias)
            return
        before = input_of(node, rule.bias)
        shape = weights.bias.shape if before is None else static_dims(before) or weights.bias.shape
        if self._rules.bias == "int32" and source is not None and source.scale.size == 1:
            bias = self._integer_bias(node, weights, source, shape)
        else:
            bias = self._constant(f"{name}/bias", weights.bias.reshape(shape).astype(np.float32))
        if rule.bias >= len(node.inputs):
            node.resize_inputs(rule.bias + 1)
        node.replace_input_with(rule.bias, bias)

    def _integer_bias(
        self, node: ir.Node, weights: QuantizedWeights, source: Affine, shape: tuple[int, ...]
    ) -> ir.Value:
        """Return the int32 bias; its scale is the scale of the input times that of the weights."""
        name, bias = node_name(node), np.asarray(weights.bias)
        scale = (source.scale.reshape(()) * weights.affine.scale).astype(np.float32)
        if scale.size > 1 and scale.size != bias.size:  # a grouped ConvTranspose: the axis is of one group
            scale = np.tile(scale, bias.size // scale.size)
        limits = np.iinfo(np.int32)
        units = np.rint(bias.astype(np.float64) / scale.astype(np.float64))
        integers = np.clip(units, limits.min, limits.max).astype(np.int32)
        if scale.ndim == 0 or scale.size == 1:
            affine = Affine(scale.reshape(()), np.zeros((), np.int32), "int32")
        else:
            affine = Affine(scale, np.zeros(scale.shape, np.int32), "int32", axis=len(shape) - 1)
        stored = self._constant(f"{name}/bias", integers.reshape(shape))
        return self._dequantized(stored, affine, f"{name}/bias", before=node)

    def _set_float_bias(self, node: ir.Node, bias: Array) -> None:
        """Set the bias of an op without a bias input: it is a constant of the Add that follows."""
        value = node.outputs[0]
        constant = self._constant(f"{node_name(node)}/bias", bias.astype(np.float32))
        reader = only_consumer(value)
        if reader is not None and reader.op_type == "Add" and not reader.domain:
            for index, other in enumerate(reader.inputs):
                if other is not value and (array := array_of(other)) is not None and array.size == bias.size:
                    reader.replace_input_with(index, constant)
                    return
        raise ValueError(f"{node_name(node)} has no input for a bias")

    def _scale(self, affine: Affine, name: str) -> tuple[ir.Value, ir.Value]:
        if id(affine) not in self._scales or affine.axis is None:
            scale = self._constant(f"{name}/scale", np.asarray(affine.scale, np.float32))
            zero = affine.zero_point
            zero = zero if affine.dtype == "float8e4m3fn" else np.asarray(zero, affine.dtype)
            # Held, so that its id stays its own.
            self._scales[id(affine)] = scale, self._constant(f"{name}/zero_point", zero), affine
        return self._scales[id(affine)][:2]

    def _dequantized(
        self,
        stored: ir.Value,
        affine: Affine,
        name: str,
        *,
        after: ir.Node | None = None,
        before: ir.Node | None = None,
    ) -> ir.Value:
        attributes = {} if affine.axis is None else {"axis": affine.axis}
        inputs = [stored, *self._scale(affine, name)] if after is None else list(after.inputs)
        node = ir.node("DequantizeLinear", [stored, *inputs[1:]], attributes=attributes)
        real = self._named(node, f"{name}/dequantized", ir.DataType.FLOAT, stored.shape)
        self._insert(node, after, before)
        return real

    def _insert(self, node: ir.Node, after: ir.Node | None, before: ir.Node | None = None) -> None:
        if before is not None:
            self._graph.insert_before(before, node)
        elif after is not None:
            self._graph.insert_after(after, node)
        else:
            self._graph.insert_before(self._graph[0], node)

    def _named(self, node: ir.Node, name: str, dtype: ir.DataType, shape: ir.Shape | None) -> ir.Value:
        value = node.outputs[0]
        value.name = node.name = self._unique_name(name)
        value.dtype, value.shape = dtype, shape
        return value

    def _constant(self, name: str, array: Array) -> ir.Value:
        alike = self._by_shape.setdefault(array.shape, [])
        if (equal := equal_weight(alike, array)) is not None:  # of layers that share their weights
            return equal
        value = ir.Value(
            name=self._unique_name(name),
            type=ir.TensorType(ir.DataType.from_numpy(array.dtype)),
            shape=ir.Shape(array.shape),
            const_value=ir.Tensor(array),
        )
        self._graph.initializers.add(value)
        alike.append(value)
        return value

    def _unique_name(self, name: str) -> str:
        free, number = name, 2
        while free in self._used_names:
            free, number = f"{name}_{number}", number + 1
        self._used_names.add(free)
        return free
