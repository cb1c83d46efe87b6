"""Plan -> the canonical graph with Q/DQ pairs, the only form that a target sees.

Every value has a shape and a type, the graph's inputs and outputs keep their names, and the float weights
that nobody reads any more are gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from edgekit.model.node_checks import static_dims
from edgekit.model.rewriting import array_of, input_of, only_user
from edgekit.quantize.numerics import quantize
from edgekit.quantize.placement.kernels import node_name, rule_of
from edgekit.quantize.placement.zero_centring import bias_for, centred, constant_of, moves, takes_up
from edgekit.quantize.recipe import Affine, QuantizationPlan, QuantizedWeights
from edgekit.target.quant_rules import Rules
from edgekit.tensors import Array


def emit(model: ir.Model, plan: QuantizationPlan, rules: Rules) -> ir.Model:
    """A copy of the model that computes as the plan says, in ONNX's own operators.

    Args:
        model: The canonical float graph that the plan is for. It is not changed.
        plan: With the weights of every node that has some.
        rules: Of the target: how biases are stored.

    Returns:
        Opset 23, with the model's signature.

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
        if rule is not None and rule.weight is not None and name not in plan.weights:
            raise ValueError(f"the plan has no weights for {name}")
    for name, node in nodes.items():  # before the pairs: what a node is, is seen by what it reads
        if name in plan.weights:
            writer.store_weights(node, plan.weights[name])
    for value in list(_values(copy)):
        if str(value.name) in plan.activations:
            writer.store(value, plan.activations[str(value.name)])
    for name, value in list(copy.graph.initializers.items()):
        if not value.uses() and not value.is_graph_output() and not value.is_graph_input():
            del copy.graph.initializers[name]
    return copy


def _values(model: ir.Model) -> Iterator[ir.Value]:
    """Everything that a pair can stand behind, in the graph's order."""
    yield from model.graph.inputs
    yield from (value for value in model.graph.initializers.values() if not value.is_graph_input())
    for node in model.graph:
        yield from node.outputs


class _Writer:
    """Adds pairs and constants to one graph, each under a name of its own."""

    def __init__(self, model: ir.Model, plan: QuantizationPlan, rules: Rules) -> None:
        self._graph = model.graph
        self._plan = plan
        self._rules = rules
        self._taken = {str(value.name) for value in _values(model)} | set(model.graph.initializers)

    def store(self, value: ir.Value, affine: Affine) -> None:
        """Put a pair behind a value, for those who read it as integers."""
        name, array, producer = str(value.name), array_of(value), value.producer()
        of_integers = producer is not None and node_name(producer) in self._plan.nodes
        readers = [use for use in value.uses() if of_integers or node_name(use.node) in self._plan.nodes]
        if array is not None:
            if not readers:
                return
            stored = self._constant(f"{name}/stored", quantize(array, affine))
            real = self._dequantized(stored, affine, name, before=readers[0].node)
        else:
            moved = self._moves(producer)
            if of_integers and value.is_graph_output():
                value.name = self._free(
                    f"{name}/float"
                )  # the output keeps its name; what is made gets another
            constant, source = constant_of(affine, self._rules), value
            affine = centred(affine) if constant else affine
            if constant and not moved:  # what is moved was less the constant before
                source = self._plus(value, -constant, f"{name}/centred", behind=producer)
            inputs = [source, *self._scale(affine, name)]
            attributes = {} if affine.axis is None else {"axis": affine.axis}
            node = ir.node("QuantizeLinear", inputs, attributes=attributes)
            stored = self._named(node, f"{name}/quantized", ir.DataType[affine.dtype.upper()], value.shape)
            self._insert(node, behind=source.producer())
            real = self._dequantized(stored, affine, name, behind=node)
            written = of_integers and value.is_graph_output()
            if constant:
                less = [use for use in readers if self._takes_up(use.node)]
                for use in less:
                    use.node.replace_input_with(use.idx, real)
                readers = [use for use in readers if use not in less]
                if readers or written:
                    real = self._plus(real, constant, f"{name}/whole", behind=real.producer())
            if written:
                self._graph.outputs[self._graph.outputs.index(value)] = real
                real.name = name
        for use in readers:
            use.node.replace_input_with(use.idx, real)

    def _takes_up(self, node: ir.Node) -> bool:
        """Whether a reader of a value less a constant gives what it should."""
        return (node_name(node) in self._plan.weights and takes_up(node)) or self._moves(node)

    def _moves(self, node: ir.Node | None) -> bool:
        """Whether a node of integers gives what it is given, of the same scale."""
        if node is None or node_name(node) not in self._plan.nodes:
            return False
        rule = rule_of(node, self._rules)
        return rule is not None and rule.output == "inputs" and moves(node)

    def _plus(self, value: ir.Value, number: float, name: str, behind: ir.Node | None) -> ir.Value:
        """A value and a number more."""
        node = ir.node("Add", [value, self._constant(f"{name}/constant", np.array(number, np.float32))])
        made = self._named(node, name, ir.DataType.FLOAT, value.shape)
        self._insert(node, behind)
        return made

    def store_weights(self, node: ir.Node, weights: QuantizedWeights) -> None:
        """Let a node read its weights, and its bias where the rules store it, as integers."""
        rule = rule_of(node, self._rules)
        if rule is None or rule.weight is None:
            raise ValueError(f"{self._rules.target} has no row for the weights of {node_name(node)}")
        name, affine = node_name(node), weights.affine
        stored = self._constant(f"{name}/weights", weights.stored)
        node.replace_input_with(
            rule.weight, self._dequantized(stored, affine, f"{name}/weights", before=node)
        )
        source = self._plan.activations.get(str(node.inputs[0].name)) if node.inputs[0] is not None else None
        constant = constant_of(source, self._rules) if source is not None and takes_up(node) else 0.0
        if constant:
            weights = replace(weights, bias=bias_for(node, weights, constant))
        if weights.bias is None:
            return
        if rule.bias is None:
            self._add_behind(node, weights.bias)
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
        """The bias in units of the accumulator: scale of the input times scale of the weights."""
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

    def _add_behind(self, node: ir.Node, bias: Array) -> None:
        """The bias of an op that has no place for one: of the Add behind it, or of a new one."""
        value = node.outputs[0]
        constant = self._constant(f"{node_name(node)}/bias", bias.astype(np.float32))
        reader = only_user(value)
        if reader is not None and reader.op_type == "Add" and not reader.domain:
            for place, other in enumerate(reader.inputs):
                if other is not value and (array := array_of(other)) is not None and array.size == bias.size:
                    reader.replace_input_with(place, constant)
                    return
        raise ValueError(f"{node_name(node)} has no place for a bias")

    def _scale(self, affine: Affine, name: str) -> tuple[ir.Value, ir.Value]:
        scale = self._constant(f"{name}/scale", np.asarray(affine.scale, np.float32))
        return scale, self._constant(f"{name}/zero_point", np.asarray(affine.zero_point, affine.dtype))

    def _dequantized(
        self,
        stored: ir.Value,
        affine: Affine,
        name: str,
        *,
        behind: ir.Node | None = None,
        before: ir.Node | None = None,
    ) -> ir.Value:
        attributes = {} if affine.axis is None else {"axis": affine.axis}
        inputs = [stored, *self._scale(affine, name)] if behind is None else list(behind.inputs)
        node = ir.node("DequantizeLinear", [stored, *inputs[1:]], attributes=attributes)
        real = self._named(node, f"{name}/dequantized", ir.DataType.FLOAT, stored.shape)
        self._insert(node, behind, before)
        return real

    def _insert(self, node: ir.Node, behind: ir.Node | None, before: ir.Node | None = None) -> None:
        """Put a node behind another, before another, or at the head of the graph."""
        if before is not None:
            self._graph.insert_before(before, node)
        elif behind is not None:
            self._graph.insert_after(behind, node)
        else:
            self._graph.insert_before(self._graph[0], node)

    def _named(self, node: ir.Node, name: str, dtype: ir.DataType, shape: ir.Shape | None) -> ir.Value:
        """The result of a new node, named and typed; the node is called the same."""
        value = node.outputs[0]
        value.name = node.name = self._free(name)
        value.dtype, value.shape = dtype, shape
        return value

    def _constant(self, name: str, array: Array) -> ir.Value:
        value = ir.Value(
            name=self._free(name),
            type=ir.TensorType(ir.DataType.from_numpy(array.dtype)),
            shape=ir.Shape(array.shape),
            const_value=ir.tensor(array),
        )
        self._graph.initializers.add(value)
        return value

    def _free(self, name: str) -> str:
        free, number = name, 2
        while free in self._taken:
            free, number = f"{name}_{number}", number + 1
        self._taken.add(free)
        return free
