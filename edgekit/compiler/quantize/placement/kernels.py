"""The int8 kernels of a canonical graph: a target's rules matched with the nodes.

A kernel is a node that matches a rule, with the nodes fused after it (a QDQ node unit in ONNX Runtime's
terms). Q/DQ pairs are placed before it and, if its rule says so, after it, never within.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import onnx_ir as ir

from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.rewriting import array_of, input_of, only_consumer, producer_of
from edgekit.target.quant_rules import Fusion, OpRule, Rules

OPSET = 23
"""The opset of the canonical graph."""


@dataclass(frozen=True, eq=False)
class Kernel:
    """A node that runs in int8, with the nodes fused after it.

    Attributes:
        nodes: In order; the last one produces the ``outputs``.
        inputs: Values that must be quantized, with constants if the rule quantizes them.
    """

    rule: OpRule
    nodes: tuple[ir.Node, ...]
    inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]

    @property
    def name(self) -> str:
        """Return the name of the first node, which has the weights."""
        return node_name(self.nodes[0])

    @property
    def is_agnostic(self) -> bool:
        """Return whether it runs in int8 only next to int8 kernels: alone it isn't worth a Q/DQ pair."""
        return self.rule.weight is None


def node_name(node: ir.Node) -> str:
    """Return the quantizer's name of a node: that of its first output."""
    return str(node.outputs[0].name)


def find_kernels(
    model: ir.Model,
    rules: Rules,
    float_nodes: Collection[str] = (),
    storable: Callable[[ir.Value], bool] = lambda value: True,
) -> tuple[Kernel, ...]:
    """Return the int8 kernels of the target, in the graph's order.

    Excluded are nodes in ``float_nodes`` (nodes that would be fused after such a node may still be kernels of
    their own), nodes after the last kernel with weights unless ``rules.outputs`` or ``rules.integers``, nodes
    whose values are not ``storable``, agnostic ops with float inputs only (they would need one more pair),
    and groups of connected kernels that are all agnostic.
    """
    floats = set(float_nodes)
    while True:
        kernels = list(_match(model, rules, floats))
        dropped = {k.name for k in kernels if not all(map(storable, (*k.inputs, *k.outputs)))}
        if not dropped:
            tail = set() if rules.outputs or rules.integers else _tail(model, kernels)
            kernels = [kernel for kernel in kernels if kernel.name not in tail]
            return tuple(_in_int8_groups(_without_float_inputs(kernels)))
        floats |= dropped


def rule_of(node: ir.Node, rules: Rules) -> OpRule | None:
    """Return the first rule that the node matches, or None."""
    if node.domain:
        return None
    return next((rule for rule in rules.ops if rule.op == node.op_type and _fits(node, rule)), None)


def stored_inputs(node: ir.Node, rule: OpRule) -> tuple[ir.Value, ...]:
    """Return the float inputs that must be quantized, including constants but not weight and bias."""
    indices = rule.inputs or tuple(
        index for index in range(len(node.inputs)) if index not in (rule.weight, rule.bias)
    )
    values = [input_of(node, index) for index in indices]
    return tuple(dict.fromkeys(v for v in values if v is not None and v.dtype == ir.DataType.FLOAT))


def is_depthwise(node: ir.Node) -> bool:
    """Return whether a Conv has one input channel for each of several groups."""
    dims = static_dims(node.inputs[1]) if node.op_type == "Conv" else None
    groups = node.attributes["group"].as_int() if "group" in node.attributes else 1
    return dims is not None and groups > 1 and dims[1] == 1


def silu_of(value: ir.Value) -> tuple[ir.Node, ir.Node] | None:
    """Return the Sigmoid and the Mul of x * Sigmoid(x), if x and the Sigmoid have no other consumers."""
    readers = list(dict.fromkeys(use.node for use in value.uses()))
    if len(readers) != 2 or value.is_graph_output():
        return None
    for sigmoid, product in (readers, readers[::-1]):
        gate = producer_of(sigmoid.outputs[0], "Sigmoid") and sigmoid.outputs[0]
        if gate and product.op_type == "Mul" and only_consumer(gate) is product and value in product.inputs:
            return sigmoid, product
    return None


def gate_of(node: ir.Node) -> ir.Node | None:
    """Return the Sigmoid of a SiLU, for its Mul. If it stays float, so does the Mul: engines fuse them."""
    if node.op_type != "Mul" or node.domain:
        return None
    for value in node.inputs:
        gate = producer_of(value, "Sigmoid")
        if gate is not None and gate.inputs[0] in node.inputs:
            return gate
    return None


def _match(model: ir.Model, rules: Rules, floats: Collection[str]) -> Iterator[Kernel]:
    fused: set[ir.Node] = set()
    integer: set[ir.Node] = set()
    for node in model.graph:
        if node in fused or node_name(node) in floats:
            continue
        rule = rule_of(node, rules)
        if rule is None or (gate_of(node) or node) not in integer | {node}:
            continue
        integer.add(node)
        nodes = (node, *_fused_after(node, rules.fusions, floats))
        fused.update(nodes)
        outputs = tuple(value for value in nodes[-1].outputs if value.name)
        yield Kernel(rule, nodes, stored_inputs(node, rule), outputs)


def _fits(node: ir.Node, rule: OpRule) -> bool:
    values = stored_inputs(node, rule)
    constant = [value for value in values if array_of(value) is not None]
    if not values or len(constant) == len(values) or (constant and not rule.constants):
        return False
    if any(static_dims(value) is None for value in (*values, *node.outputs)):
        return False
    if any(value.dtype != ir.DataType.FLOAT for value in node.outputs):
        return False
    if rule.ranks and len(static_dims(values[0]) or ()) not in rule.ranks:
        return False
    if any(_attribute(node, name) not in allowed for name, allowed in rule.where):
        return False
    return _has_weights(node, rule)


def _has_weights(node: ir.Node, rule: OpRule) -> bool:
    if rule.weight is None:
        return True
    weight = input_of(node, rule.weight)
    array = array_of(weight)
    if (
        array is None
        or array.dtype != "float32"
        or (rule.weight_ranks and array.ndim not in rule.weight_ranks)
    ):
        return False
    bias = input_of(node, rule.bias) if rule.bias is not None else None
    if bias is None:
        return True
    constant = array_of(bias)
    return constant is not None and constant.dtype == "float32" and constant.size == output_channels(node)


def output_channels(node: ir.Node) -> int:
    dims = static_dims(node.outputs[0]) or ()
    return dims[1 if node.op_type in ("Conv", "ConvTranspose") else -1]


def _attribute(node: ir.Node, name: str) -> object:
    if name in node.attributes:
        value = node.attributes[name].value
        return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
    return _default(node.op_type, name)


@cache
def _default(op: str, name: str) -> Any:
    from onnx import defs, helper

    attributes = defs.get_schema(op, OPSET, "").attributes
    if name not in attributes or not attributes[name].default_value.name:
        return None
    value = helper.get_attribute_value(attributes[name].default_value)
    return value.decode() if isinstance(value, bytes) else value


def _fused_after(node: ir.Node, fusions: Sequence[Fusion], floats: Collection[str]) -> tuple[ir.Node, ...]:
    best: tuple[ir.Node, ...] = ()
    for fusion in fusions:
        if node.op_type not in fusion.ops[0] or len(node.outputs) != 1:
            continue
        chain: list[ir.Node] = []
        for choices in fusion.ops[1:]:
            step = _step(chain[-1] if chain else node, choices)
            if not step or any(node_name(one) in floats for one in step):
                break
            chain += step
        else:
            best = max(best, tuple(chain), key=len)
    return best


def _step(node: ir.Node, choices: Sequence[str]) -> tuple[ir.Node, ...]:
    """Return the nodes of the next op of a fusion, or () if another op follows."""
    value = node.outputs[0]
    if "Silu" in choices and (silu := silu_of(value)):
        return silu
    reader = only_consumer(value)
    if reader is None or reader.domain or len(reader.outputs) != 1:
        return ()
    if "Bias" in choices and reader.op_type == "Add" and reader.inputs[0] is not reader.inputs[1]:
        other = reader.inputs[1] if reader.inputs[0] is value else reader.inputs[0]
        constant, dims = array_of(other), static_dims(other)
        if constant is not None and dims and dims[-1] == constant.size == output_channels(node):
            return (reader,)
    if reader.op_type not in choices or reader.inputs[0] is not value:
        return ()
    return (reader,) if all(v is None or array_of(v) is not None for v in reader.inputs[1:]) else ()


def _tail(model: ir.Model, kernels: Sequence[Kernel]) -> set[str]:
    compute = {node for kernel in kernels if not kernel.is_agnostic for node in kernel.nodes}
    tail: set[ir.Node] = set()
    for node in reversed(model.graph):
        readers = [use.node for value in node.outputs for use in value.uses()]
        if node not in compute and all(reader in tail for reader in readers):
            tail.add(node)
    return {node_name(node) for node in tail}


def _without_float_inputs(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Remove agnostic ops that have float inputs only. Keep data movement: int8 moves fewer bytes."""
    remaining, before = list(kernels), -1
    while len(remaining) != before:
        before = len(remaining)
        produced = {value for kernel in remaining for value in kernel.outputs}
        remaining = [
            kernel
            for kernel in remaining
            if not kernel.is_agnostic
            or kernel.rule.output == "inputs"
            or not produced.isdisjoint(kernel.inputs)
        ]
    return remaining


def _in_int8_groups(kernels: Sequence[Kernel]) -> Iterator[Kernel]:
    """Yield the kernels of groups (connected by shared values) with a kernel that is not agnostic."""
    groups = Groups()
    for kernel in kernels:
        groups.join([str(v.name) for v in (*kernel.inputs, *kernel.outputs) if array_of(v) is None])
    carried = {groups.root(str(k.outputs[0].name)) for k in kernels if not k.is_agnostic}
    return (k for k in kernels if groups.root(str(k.outputs[0].name)) in carried)


class Groups:
    """Groups of names (union-find)."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def root(self, name: str) -> str:
        """Return the representative of the group of ``name``."""
        while (parent := self._parent.get(name, name)) != name:
            self._parent[name] = self._parent.get(parent, parent)
            name = parent
        return name

    def join(self, names: Sequence[str]) -> None:
        for name in names[1:]:
            self._parent[self.root(name)] = self.root(names[0])
