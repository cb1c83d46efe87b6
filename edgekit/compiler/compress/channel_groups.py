"""Groups of channels that structured pruning removes from a graph.

A group is made of units. A unit is what can only be removed as a whole: one channel of all values that an
Add joins, one head of attention, one group of a grouped Conv. Zeroing a unit's columns in the weights that
read it, or removing the unit, gives the same outputs.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from edgekit.compiler.compress.channel_labels import ChannelLabels, Use
from edgekit.compiler.compress.channel_rules import RULES
from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.rewriting import node_name
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
