"""Sensitivity of blocks: the loss of accuracy when one block alone is quantized.

The reference executor runs a Q/DQ graph in which one block is quantized, so this needs no engine and depends
on the target's rules only.
"""

from __future__ import annotations

from collections.abc import Callable

from edgekit.compiler.evaluate.samples import subset
from edgekit.compiler.model.reference import reference_version
from edgekit.compiler.model.rewriting import array_of
from edgekit.compiler.quantize.numerics import channel_noise, dequantize
from edgekit.compiler.quantize.placement.kernels import find_kernels, node_name, rule_of
from edgekit.compiler.quantize.placement.qdq_graph import emit
from edgekit.compiler.quantize.placement.qdq_placement import place
from edgekit.compiler.quantize.recipe import QuantizationPlan
from edgekit.compiler.quantize.search import measurement_cache
from edgekit.compiler.quantize.search.measurement import BASELINE, DEFAULT
from edgekit.compiler.quantize.search.search_context import PreparedGraph, SearchContext, run_qdq_graph
from edgekit.compiler.quantize.search.sensitivity import single_kernel_plan
from edgekit.compiler.quantize.weights.optimize_weights import optimize
from edgekit.system.progress import Notify
from edgekit.target.quant_rules import Rules

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
