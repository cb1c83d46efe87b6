"""Choice of nodes to keep in float, from the accuracy loss of each block of a quantized network.

A block is one kernel with weights and the nodes fused after it. Its sensitivity is the SNR of the worst
output when it alone is quantized. Float regions reach from the input to some block, or from some block to the
output, because every border between float and integers costs a Q/DQ pair. YOLOX-nano with its 8 worst blocks
in float, scattered, took 5.3 ms; with a float first stage, as accurate, 4.7 (research).

The reference executor runs a Q/DQ graph in which one block is quantized, so this needs no engine and depends
on the target's rules only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from edgekit.compiler.evaluate.samples import subset
from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.reference import reference_version
from edgekit.compiler.model.rewriting import array_of
from edgekit.compiler.quantize.numerics import channel_noise, dequantize
from edgekit.compiler.quantize.placement.kernels import (
    Kernel,
    find_kernels,
    node_name,
    output_channels,
    rule_of,
)
from edgekit.compiler.quantize.placement.qdq_graph import emit
from edgekit.compiler.quantize.placement.qdq_placement import place
from edgekit.compiler.quantize.recipe import QuantizationPlan
from edgekit.compiler.quantize.search import measurement_cache
from edgekit.compiler.quantize.search.measurement import BASELINE, DEFAULT
from edgekit.compiler.quantize.search.search_context import PreparedGraph, SearchContext, run_qdq_graph
from edgekit.compiler.quantize.weights.optimize_weights import optimize
from edgekit.system.progress import Notify
from edgekit.target.quant_rules import Rules

NOISE_SHARES = (0.5, 0.8, 0.9, 0.97)
"""A float region is grown until it removes this share of the quantization noise; one region for each."""
WORST_COUNTS = (1, 2, 4)
"""This many of the most sensitive blocks alone are candidates too."""


@dataclass(frozen=True)
class WeightedKernel:
    """Kernel with weights; ``first``, ``last``: node indices; ``macs``: multiply-accumulates per run."""

    name: str
    nodes: frozenset[str]
    first: int
    last: int
    macs: int


def find_blocks(model: ir.Model, kernels: Sequence[Kernel]) -> list[WeightedKernel]:
    order = {node_name(node): index for index, node in enumerate(model.graph)}
    blocks = []
    for kernel in kernels:
        if kernel.rule.weight is not None:
            names = [node_name(node) for node in kernel.nodes]
            indices = [order[name] for name in names]
            macs = _macs(kernel.nodes[0], kernel.rule.weight)
            blocks.append(WeightedKernel(kernel.name, frozenset(names), min(indices), max(indices), macs))
    return blocks


def float_regions(
    model: ir.Model,
    blocks: Sequence[WeightedKernel],
    noise: Mapping[str, float],
    min_noise_share: float = 0.0,
) -> list[frozenset[str]]:
    """Return sets of nodes to keep in float, the most promising first: much noise and few MACs.

    Args:
        blocks: The quantized blocks, in the graph's order.
        noise: Block -> noise / signal of the worst output with it alone quantized, where measured.
        min_noise_share: The share (0 to 1) of the noise of all blocks that a region must remove.
    """
    measured = [block for block in blocks if block.name in noise]
    total, macs = sum(noise[b.name] for b in measured), sum(block.macs for block in blocks)
    if not measured or not 0 < total < math.inf:
        return []
    names = [node_name(node) for node in model.graph]
    worst = sorted(measured, key=lambda block: -noise[block.name])
    regions: dict[frozenset[str], float] = {}

    def add(nodes: frozenset[str]) -> None:
        contained = [block for block in blocks if block.nodes <= nodes]
        noise_share = sum(noise.get(block.name, 0.0) for block in contained) / total
        if len(contained) < len(blocks) and noise_share >= min_noise_share:
            regions[nodes] = noise_share - sum(block.macs for block in contained) / max(macs, 1)

    for count in WORST_COUNTS:
        add(frozenset().union(*(block.nodes for block in worst[:count])))
    for share in NOISE_SHARES:
        last = _until(measured, noise, share * total).last
        add(frozenset(names[: last + 1]))
        first = _until(measured[::-1], noise, share * total).first
        add(frozenset(names[first:]))
    return sorted(regions, key=lambda nodes: (-regions[nodes], len(nodes), sorted(nodes)))


def _until(
    blocks: Sequence[WeightedKernel], noise: Mapping[str, float], target_noise: float
) -> WeightedKernel:
    """Return the first block at which the accumulated noise reaches the target."""
    reached = 0.0
    for block in blocks:
        reached += noise[block.name]
        if reached >= target_noise * (1 - 1e-9):
            return block
    return blocks[-1]


def _macs(node: ir.Node, weight: int) -> int:
    array, dims = array_of(node.inputs[weight]), static_dims(node.outputs[0])
    if array is None or dims is None:
        return 0
    if node.op_type == "ConvTranspose" and node.inputs[0] is not None:
        return math.prod(static_dims(node.inputs[0]) or ()) * int(array.size) // int(array.shape[0])
    return math.prod(dims) * int(array.size) // max(output_channels(node), 1)


def single_kernel_plan(plan: QuantizationPlan, kernel: Kernel) -> QuantizationPlan:
    """Return the part of a plan that belongs to one kernel."""
    ends = {str(value.name) for value in (*kernel.inputs, *kernel.outputs)}
    return QuantizationPlan(
        {name: affine for name, affine in plan.activations.items() if name in ends},
        frozenset(node_name(node) for node in kernel.nodes),
        {name: weights for name, weights in plan.weights.items() if name == kernel.name},
    )


def float_share_of(blocks: Sequence[WeightedKernel], floats: Sequence[str]) -> float:
    """Return the share (0 to 1) of all blocks' MACs that is in the named ones."""
    total = sum(block.macs for block in blocks)
    return round(sum(block.macs for block in blocks if block.name in set(floats)) / max(total, 1), 4)


SENSITIVITY_SAMPLES = 2
"""Samples for the sensitivity of each block by SNR. Two suffice: it only ranks blocks."""
SENSITIVITY_PREDICTIONS = 4
"""The same where predictions are compared: those of the validation samples with the most of them."""
SENSITIVITY_BLOCKS = 32
"""Sensitivity is measured for at most this many blocks: those with the largest errors of inputs and
weights."""


def measure_block_snr_db(
    context: SearchContext,
    graph: PreparedGraph,
    rules: Rules,
    floats: frozenset[str],
    key: str,
    has_time: Callable[[], bool],
    report: Notify,
) -> dict[str, float]:
    """Measure each block alone, in dB: the power of the float model's result over that of the change.

    The result is what the task's metric compares where it resolves small changes (boxes and their scores),
    and the worst output otherwise (``Evaluator.change_db``).

    Args:
        graph: The graph that a plan with these float nodes applies to.
        key: Cache key of the measurements, in addition to the context.
        has_time: Called before each block; the remaining blocks are skipped when it returns False.
    """
    plan = place(graph.model, rules, graph.observations, DEFAULT, floats, context.range_cache)
    plan = optimize(graph.model, plan, rules, context.calibration, BASELINE)
    kernels = {kernel.name: kernel for kernel in find_kernels(graph.model, rules, floats)}
    chosen = context.evaluator.most_telling(SENSITIVITY_SAMPLES, SENSITIVITY_PREDICTIONS)
    samples = subset(context.validation, chosen)
    record = measurement_cache.key("sensitivity", context.digest, key, list(chosen), reference_version())
    figures = measurement_cache.recall(record, dict[str, float]) or {}
    missing = [name for name in _most_changed(graph, plan, rules) if name not in figures]
    try:
        for done, name in enumerate(missing):
            if not has_time():
                break
            report("sensitivity of each block", done, len(missing), "blocks")
            one = emit(graph.model, single_kernel_plan(plan, kernels[name]), rules)
            figures[name] = context.evaluator.change_db(run_qdq_graph(one, samples), chosen)
    finally:  # after Ctrl-C too, the next run goes on from here
        measurement_cache.record(record, dict[str, float], figures)
    return figures


def _most_changed(graph: PreparedGraph, plan: QuantizationPlan, rules: Rules) -> list[str]:
    """Return the blocks with the largest errors of their own quantized inputs and weights, largest first."""
    nodes = {node_name(node): node for node in graph.model.graph}

    def noise(name: str) -> float:
        node = nodes[name]
        rule = rule_of(node, rules)
        stored = [v for v in node.inputs if v is not None and v.name in plan.activations]
        noises = [
            channel_noise(graph.observations[str(v.name)], plan.activations[str(v.name)])
            for v in stored
            if str(v.name) in graph.observations
        ]
        weights, affine = plan.weights[name].stored, plan.weights[name].affine
        real = array_of(node.inputs[rule.weight]) if rule is not None and rule.weight is not None else None
        if real is not None:
            error = dequantize(weights, affine) - real
            noises.append(float((error**2).sum() / max(float((real**2).sum()), 1e-30)))
        return sum(noises)

    return sorted(plan.weights, key=noise, reverse=True)[:SENSITIVITY_BLOCKS]
