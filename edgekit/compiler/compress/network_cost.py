"""Cost of a network in multiplications and bytes of weights, and the savings of removing channels."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Literal

import numpy as np
import onnx_ir as ir

from edgekit.compiler.compress.channel_groups import ChannelGroup, Channels
from edgekit.compiler.compress.channel_labels import Use
from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.rewriting import array_of, input_of

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
