"""Noise of a network's parts: how much the result changes when one part alone is quantized.

The reference executor runs a Q/DQ graph in which one part is quantized. Engines differ little in it, so it is
measured by the rules of the first target of a build, and used for all.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from edgekit.compiler.evaluate.samples import subset
from edgekit.compiler.model.reference import reference_version
from edgekit.compiler.quantize.placement.kernels import Kernel, find_kernels, node_name
from edgekit.compiler.quantize.placement.qdq_graph import emit
from edgekit.compiler.quantize.placement.qdq_placement import place
from edgekit.compiler.quantize.recipe import QuantizationPlan
from edgekit.compiler.quantize.search import measurement_cache
from edgekit.compiler.quantize.search.measurement import BASELINE, DEFAULT
from edgekit.compiler.quantize.search.search_context import PreparedGraph, SearchContext, run_qdq_graph
from edgekit.compiler.quantize.search.sensitivity import (
    PARTS,
    Parts,
    WeightedKernel,
    first_parts,
    part_to_split,
    plan_of_kernels,
)
from edgekit.compiler.quantize.weights.optimize_weights import optimize
from edgekit.system.progress import Notify
from edgekit.target.quant_rules import Rules

SNR_SAMPLES = 2
"""Samples for the noise of a part by SNR. Two suffice: it only ranks parts."""
PREDICTION_SAMPLES = 4
"""The same where predictions are compared: those of the validation samples with the most of them."""
MOST_NOISE_DB = 100.0
"""Noise of a part whose result is not finite, in dB above the signal."""


def measure_part_noise(
    context: SearchContext,
    graph: PreparedGraph,
    rules: Rules,
    blocks: Sequence[WeightedKernel],
    report: Notify,
) -> Parts:
    """Measure each part alone: the power of the change over that of the float model's result.

    The result is what the task's metric compares where it resolves small changes (boxes and their scores),
    and the worst output otherwise (``Evaluator.change_db``). A part with most of the noise is split.

    Args:
        graph: The rewritten graph, in which no node must stay float.
        blocks: The blocks of ``context.model``, at least one.
    """
    chosen = context.evaluator.most_telling(SNR_SAMPLES, PREDICTION_SAMPLES)
    names = [block.name for block in blocks]
    record = measurement_cache.key("noise of parts", context.digest, names, list(chosen), reference_version())
    figures = measurement_cache.recall(record, dict[str, float]) or {}
    plan = place(graph.model, rules, graph.observations, DEFAULT, frozenset(), context.range_cache)
    plan = optimize(graph.model, plan, rules, context.calibration, BASELINE)
    by_block = _kernels_by_block(graph.model, plan, rules, names)
    samples = subset(context.validation, chosen)

    def noise_of(part: tuple[int, int]) -> float:
        key = f"{part[0]} {part[1]}"
        if key not in figures:
            report("noise of each part", len(figures), PARTS, "parts")
            one = plan_of_kernels(plan, [kernel for index in range(*part) for kernel in by_block[index]])
            outputs = run_qdq_graph(emit(graph.model, one, rules), samples)
            change_db = max(context.evaluator.change_db(outputs, chosen), -MOST_NOISE_DB)
            figures[key] = 10 ** (-change_db / 10)
        return figures[key]

    try:
        noise = {part: noise_of(part) for part in first_parts(len(blocks))}
        while (part := part_to_split(noise)) is not None:
            middle = sum(part) // 2
            del noise[part]
            noise |= {half: noise_of(half) for half in ((part[0], middle), (middle, part[1]))}
    finally:  # after Ctrl-C too, the next run goes on from here
        measurement_cache.record(record, dict[str, float], figures)
    return noise


def _kernels_by_block(
    model: ir.Model, plan: QuantizationPlan, rules: Rules, names: Sequence[str]
) -> list[list[Kernel]]:
    """Return the plan's kernels from each block on, up to the next one."""
    blocks = {name: index for index, name in enumerate(names)}
    kernels = {kernel.name: kernel for kernel in find_kernels(model, rules)}
    by_block: list[list[Kernel]] = [[] for _ in names]
    current = 0
    for node in model.graph:
        current = blocks.get(node_name(node), current)
        kernel = kernels.get(node_name(node))
        if kernel is not None and plan.nodes.issuperset(map(node_name, kernel.nodes)):
            by_block[current].append(kernel)
    return by_block
