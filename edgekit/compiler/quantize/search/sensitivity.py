"""Choice of nodes to keep in float, from the noise of each part of a quantized network.

A block is one kernel with weights and the nodes fused after it, a part a run of blocks. Its noise is that of
the result when it alone is quantized. A float region is the cheapest set of parts with a share of the noise:
its cost is its multiplications and the borders between float and integers, each of which takes a Q/DQ pair.
YOLOX-nano with its 8 worst blocks in float, scattered, took 5.3 ms; with a float first stage, as accurate,
4.7 (research).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.rewriting import array_of
from edgekit.compiler.quantize.placement.kernels import Kernel, node_name, output_channels
from edgekit.compiler.quantize.recipe import QuantizationPlan

PARTS = 12
"""Number of parts at first. Single blocks are too many to measure: of YOLOX-nano's 113, the 32 with the
largest errors of their own leave out the first nine, which have a fifth of the noise."""
SPLIT_SHARE = 0.5
"""A part with more than this share of the noise is split."""
MOST_PARTS = 16
"""All sets of parts are compared, so there are no more."""
NOISE_SHARES = (0.7, 0.8, 0.9)
"""A float region has this share of the quantization noise; one region for each."""
BORDER_COST = 200
"""Cost of each element at a border between float and integers, in multiplications. So borders are rare, and
rarest near the input: YOLOX-nano on LiteRT with its blocks 9 to 27, 56 to 65 and the last 19 float takes .80
of fp32's time, with the first 9 float too .70."""

Parts = Mapping[tuple[int, int], float]
"""(index of the first block, index after the last) -> noise / signal with them alone quantized."""


@dataclass(frozen=True)
class WeightedKernel:
    """Kernel with weights.

    Attributes:
        first, last: Indices of its nodes.
        macs: Multiply-accumulates per run.
        elements: Elements of its result.
    """

    name: str
    nodes: frozenset[str]
    first: int
    last: int
    macs: int
    elements: int


def find_blocks(model: ir.Model, kernels: Sequence[Kernel]) -> list[WeightedKernel]:
    """Return the kernels with weights, in the graph's order."""
    order = {node_name(node): index for index, node in enumerate(model.graph)}
    blocks = []
    for kernel in kernels:
        if kernel.rule.weight is not None:
            names = [node_name(node) for node in kernel.nodes]
            indices = [order[name] for name in names]
            macs = _macs(kernel.nodes[0], kernel.rule.weight)
            elements = math.prod(static_dims(kernel.outputs[-1]) or ())
            blocks.append(
                WeightedKernel(kernel.name, frozenset(names), min(indices), max(indices), macs, elements)
            )
    return blocks


def first_parts(count: int) -> list[tuple[int, int]]:
    """Return the parts of ``count`` blocks, of about equal length.

    >>> first_parts(3), len(first_parts(113))
    ([(0, 1), (1, 2), (2, 3)], 12)
    """
    number = min(count, PARTS)
    ends = [round(index * count / number) for index in range(number + 1)]
    return list(pairwise(ends))


def part_to_split(noise: Parts) -> tuple[int, int] | None:
    """Return the part with more than SPLIT_SHARE of the noise, if it has several blocks.

    >>> part_to_split({(0, 4): 0.2, (4, 8): 0.7}), part_to_split({(0, 1): 0.7, (1, 4): 0.2})
    ((4, 8), None)
    """
    part = max(noise, key=lambda part: noise[part], default=(0, 0))
    is_worst = noise and noise[part] > SPLIT_SHARE * sum(noise.values())
    return part if is_worst and part[1] - part[0] > 1 and len(noise) < MOST_PARTS else None


def float_regions(
    model: ir.Model,
    blocks: Sequence[WeightedKernel],
    noise: Parts,
    floats: Collection[str] = (),
    min_noise_share: float = 0.0,
) -> list[frozenset[str]]:
    """Return sets of nodes to keep in float, from the fewest to the most.

    Args:
        blocks: All blocks, in the graph's order.
        floats: Nodes that are float anyway.
        min_noise_share: The share (0 to 1) of the noise that a region must remove.
    """
    parts = sorted(noise)
    quantized = np.array([not block.nodes <= set(floats) for block in blocks])
    left = np.array([noise[a, b] * quantized[a:b].mean() for a, b in parts])
    macs = np.array([[block.macs for block in blocks[a:b]] @ quantized[a:b] for a, b in parts], float)
    if not left.sum() or not math.isfinite(left.sum()):
        return []
    # One row for each set of parts, but for none of them and all that have quantized blocks.
    sets = np.arange(1, 2 ** len(parts))[:, None] >> np.arange(len(parts)) & 1
    sets = sets[(sets @ left < left.sum() * (1 - 1e-9)) & (sets @ macs < macs.sum())]
    borders = np.array([BORDER_COST * blocks[end - 1].elements for _, end in parts[:-1]], float)
    cost = sets @ macs + (sets[:, 1:] != sets[:, :-1]) @ borders
    names = [node_name(node) for node in model.graph]
    starts = [0, *(block.first for block in blocks[1:]), len(names)]
    regions: dict[frozenset[str], None] = {}
    for share in NOISE_SHARES:
        enough = np.flatnonzero(sets @ left >= max(share, min_noise_share) * left.sum() * (1 - 1e-9))
        if enough.size:
            chosen = sets[enough[np.argmin(cost[enough])]]
            taken = [
                names[starts[a] : starts[b]] for (a, b), is_in in zip(parts, chosen, strict=True) if is_in
            ]
            regions[frozenset().union(*taken)] = None
    return list(regions)


def _macs(node: ir.Node, weight: int) -> int:
    array, dims = array_of(node.inputs[weight]), static_dims(node.outputs[0])
    if array is None or dims is None:
        return 0
    if node.op_type == "ConvTranspose" and node.inputs[0] is not None:
        return math.prod(static_dims(node.inputs[0]) or ()) * int(array.size) // int(array.shape[0])
    return math.prod(dims) * int(array.size) // max(output_channels(node), 1)


def plan_of_kernels(plan: QuantizationPlan, kernels: Sequence[Kernel]) -> QuantizationPlan:
    """Return the part of a plan that belongs to these kernels."""
    ends = {str(value.name) for kernel in kernels for value in (*kernel.inputs, *kernel.outputs)}
    names = {kernel.name for kernel in kernels}
    return QuantizationPlan(
        {name: affine for name, affine in plan.activations.items() if name in ends},
        frozenset(node_name(node) for kernel in kernels for node in kernel.nodes),
        {name: weights for name, weights in plan.weights.items() if name in names},
    )


def float_share_of(blocks: Sequence[WeightedKernel], floats: Sequence[str]) -> float:
    """Return the share (0 to 1) of all blocks' MACs that is in the named ones."""
    total = sum(block.macs for block in blocks)
    return round(sum(block.macs for block in blocks if block.name in set(floats)) / max(total, 1), 4)
