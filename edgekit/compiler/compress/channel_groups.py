"""Groups of channels that structured pruning removes from a graph, and what they cost.

A group is made of units. A unit is what can only be removed as a whole: one channel of all values that an
Add joins, one head of attention, one group of a grouped Conv. Zeroing a unit's columns in the weights that
read it, or removing the unit, gives the same outputs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy as np
import onnx_ir as ir

from edgekit.compiler.compress.channel_labels import ChannelLabels, Use
from edgekit.compiler.compress.channel_rules import RULES
from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.rewriting import array_of, input_of, node_name
from edgekit.tensor_spec import Array


@dataclass(frozen=True, eq=False)
class ChannelGroup:
    """Channels that are alike: made and read by the same weights.

    Attributes:
        name: Name of the first node that makes them.
        units: Their labels, int64 [units].
        outputs: Uses whose rows make the channels.
        inputs: Uses whose columns read them.
        channels: Channels of the first maker for each unit.
    """

    name: str
    units: Array
    outputs: tuple[Use, ...]
    inputs: tuple[Use, ...]
    channels: int


@dataclass(frozen=True, eq=False)
class Channels:
    """The channels of a model.

    Attributes:
        labels: Labels of its values. The same model, or a clone of it, has the same ones each time.
        groups: Groups that can be removed, in the order of the graph.
    """

    model: ir.Model
    labels: ChannelLabels
    groups: tuple[ChannelGroup, ...]

    def remaining(self, ids: Array, removed: Collection[int]) -> Array:
        """Return the indices of the labels that remain after some units are removed: int64, in order."""
        return np.flatnonzero(~np.isin(self.labels.roots(ids), list(removed)))


def find_channels(model: ir.Model) -> Channels:
    """Find the channel groups of a canonical model with static shapes."""
    labels = ChannelLabels()
    for node in model.graph:
        rule = RULES.get(node.op_type) if not node.domain else None
        shapeless = any(static_dims(value) is None for value in node.outputs if value.name)
        if rule is None or shapeless or not rule(node, labels):
            labels.close(*node.inputs)
            _close_captured(node, labels)
    labels.close(*model.graph.outputs)
    closed = set(labels.roots(np.array(sorted(labels.closed), np.int64)).tolist())
    return Channels(model, labels, tuple(_groups(labels, closed)))


def _close_captured(node: ir.Node, labels: ChannelLabels) -> None:
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            for inner in attribute.as_graph().all_nodes():
                labels.close(*inner.inputs)
            labels.close(*attribute.as_graph().outputs)


def _groups(labels: ChannelLabels, closed: set[int]) -> list[ChannelGroup]:
    uses_of: dict[int, list[int]] = {}
    for number, use in enumerate(labels.uses):
        for root in np.unique(labels.roots(use.ids)).tolist():
            uses_of.setdefault(root, []).append(number)
    alike: dict[tuple[int, ...], list[int]] = {}
    for root, numbers in uses_of.items():
        if root not in closed:
            alike.setdefault(tuple(numbers), []).append(root)
    groups = []
    for alike_in, roots in sorted(alike.items()):
        uses = [labels.uses[number] for number in alike_in]
        outputs = tuple(use for use in uses if use.role == "output")
        inputs = tuple(use for use in uses if use.role == "input")
        if len(roots) > 1 and outputs and inputs:
            units = np.array(sorted(roots), np.int64)
            out = int(np.isin(labels.roots(outputs[0].ids), units).sum())
            groups.append(ChannelGroup(node_name(outputs[0].node), units, outputs, inputs, out // len(units)))
    return groups


CostKind = Literal["multiplications", "bytes"]


def cost(model: ir.Model, kind: CostKind) -> int:
    """Count the multiplications of one run, or the bytes of all constants."""
    return multiplications(model) if kind == "multiplications" else weight_bytes(model)


def multiplications(model: ir.Model) -> int:
    """Count the multiplications of one run: those of Conv, ConvTranspose, Gemm and MatMul."""
    return sum(_multiplications(node) for node in model.graph)


def weight_bytes(model: ir.Model) -> int:
    """Count the bytes of all constants."""
    return sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None)


def _multiplications(node: ir.Node) -> int:
    if node.domain or node.op_type not in ("Conv", "ConvTranspose", "Gemm", "MatMul"):
        return 0
    a, b, y = (static_dims(v) for v in (node.inputs[0], node.inputs[1], node.outputs[0]))
    if a is None or b is None or y is None:
        return 0
    if node.op_type == "Conv":
        return prod(y) * prod(b[1:])
    if node.op_type == "ConvTranspose":
        return prod(a) * prod(b[1:])
    if node.op_type == "Gemm":
        return prod(b) * y[0]
    return prod(y) * a[-1]


class CostOfChannels:
    """Cost of the nodes with weights, as units of groups are removed.

    A node's cost is proportional to its remaining input channels and to its remaining output channels.
    """

    def __init__(self, channels: Channels, kind: CostKind) -> None:
        self._labels = channels.labels
        self._nodes: dict[str, int] = {}
        self._left: dict[tuple[str, str], float] = {}
        for node in channels.model.graph:
            weights = array_of(input_of(node, 1)) if len(node.inputs) > 1 else None
            if _multiplications(node) and weights is not None:
                cost = _multiplications(node) if kind == "multiplications" else weights.nbytes
                self._nodes[_key(node)] = cost
        self._uses: dict[str, list[tuple[str, str, float]]] = {}
        for group in channels.groups:
            self._uses[group.name] = [
                (_key(use.node), use.role, self._share(use, group))
                for use in channels.labels.uses
                if use.index == 1 and _key(use.node) in self._nodes and self._share(use, group)
            ]

    def _share(self, use: Use, group: ChannelGroup) -> float:
        count = np.isin(self._labels.roots(use.ids), group.units).sum()
        return float(count) / len(group.units) / len(use.ids)

    def saving(self, group: ChannelGroup, units: int) -> float:
        """Compute the saving of removing some more units of a group now."""
        after = dict(self._left)
        self._take(after, group, units)
        nodes = {node for node, _, _ in self._uses[group.name]}
        return sum(self._cost(node, self._left) - self._cost(node, after) for node in nodes)

    def remove(self, group: ChannelGroup, units: int) -> None:
        self._take(self._left, group, units)

    def _take(self, remaining: dict[tuple[str, str], float], group: ChannelGroup, units: int) -> None:
        for node, role, share in self._uses[group.name]:
            remaining[node, role] = remaining.get((node, role), 1.0) - share * units

    def _cost(self, node: str, remaining: Mapping[tuple[str, str], float]) -> float:
        return self._nodes[node] * prod(
            remaining.get((node, role), 1.0) for role in ("input", "output", "along")
        )


def _key(node: ir.Node) -> str:
    return str(node.outputs[0].name)
