"""Where a quantized network loses its accuracy, and which nodes to keep in float for it.

A block is one kernel with weights and what is fused behind it. Its damage is the SNR of the worst output when
it alone is quantized. Nodes are kept in float as islands: closed from the input to some block, or from some
block to the output, for every border between float and integers costs a pair. YOLOX-nano with its 8 worst
blocks in float, scattered, took 5.3 ms; with a closed first stage, as accurate, 4.7 (research).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from edgekit.model.node_checks import static_dims
from edgekit.model.rewriting import array_of
from edgekit.quantize.placement.kernels import Kernel, node_name, output_channels

SHARES = (0.5, 0.8, 0.9, 0.97)
"""Parts of the damage that an island is grown to take away."""
WORST = (1, 2, 4)
"""So many of the worst blocks alone are candidates too."""


@dataclass(frozen=True)
class Block:
    """One kernel with weights.

    Attributes:
        name: Of the kernel.
        nodes: Names of its nodes.
        first, last: Where its nodes begin and end in the graph.
        macs: Products that it adds up for one inference.
    """

    name: str
    nodes: frozenset[str]
    first: int
    last: int
    macs: int


def find_blocks(model: ir.Model, kernels: Sequence[Kernel]) -> list[Block]:
    """The kernels with weights, in the graph's order."""
    order = {node_name(node): index for index, node in enumerate(model.graph)}
    found = []
    for kernel in kernels:
        if kernel.rule.weight is not None:
            names = [node_name(node) for node in kernel.nodes]
            places = [order[name] for name in names]
            macs = _macs(kernel.nodes[0], kernel.rule.weight)
            found.append(Block(kernel.name, frozenset(names), min(places), max(places), macs))
    return found


def float_regions(
    model: ir.Model, blocks: Sequence[Block], noise: Mapping[str, float], least: float = 0.0
) -> list[frozenset[str]]:
    """Sets of nodes that might stay float, the most promising first: much damage and few products in them.

    Args:
        model: The canonical float graph.
        blocks: In the graph's order; those that compute on integers as it is.
        noise: Block -> noise / signal of the worst output with it alone quantized, where that is known.
        least: The part (0 to 1) of the damage of all blocks that an island must take away.
    """
    known = [block for block in blocks if block.name in noise]
    total, macs = sum(noise[b.name] for b in known), sum(block.macs for block in blocks)
    if not known or not 0 < total < math.inf:
        return []
    names = [node_name(node) for node in model.graph]
    worst = sorted(known, key=lambda block: -noise[block.name])
    found: dict[frozenset[str], float] = {}

    def add(nodes: frozenset[str]) -> None:
        inside = [block for block in blocks if block.nodes <= nodes]
        taken = sum(noise.get(block.name, 0.0) for block in inside) / total
        if len(inside) < len(blocks) and taken >= least:
            found[nodes] = taken - sum(block.macs for block in inside) / max(macs, 1)

    for count in WORST:
        add(frozenset().union(*(block.nodes for block in worst[:count])))
    for share in SHARES:
        last = _until(known, noise, share * total).last
        add(frozenset(names[: last + 1]))
        first = _until(known[::-1], noise, share * total).first
        add(frozenset(names[first:]))
    return sorted(found, key=lambda nodes: (-found[nodes], len(nodes), sorted(nodes)))


def _until(blocks: Sequence[Block], noise: Mapping[str, float], wanted: float) -> Block:
    """The block with which the noise of those before it, and its own, reaches what is wanted."""
    reached = 0.0
    for block in blocks:
        reached += noise[block.name]
        if reached >= wanted * (1 - 1e-9):
            return block
    return blocks[-1]


def _macs(node: ir.Node, weight: int) -> int:
    """Products of a Conv, Gemm or MatMul for one inference."""
    array, dims = array_of(node.inputs[weight]), static_dims(node.outputs[0])
    if array is None or dims is None:
        return 0
    if node.op_type == "ConvTranspose" and node.inputs[0] is not None:
        return math.prod(static_dims(node.inputs[0]) or ()) * int(array.size) // int(array.shape[0])
    return math.prod(dims) * int(array.size) // max(output_channels(node), 1)
