"""Int8 of smaller models: the whole model's configuration, with ranges and weights of their own.

without training: the search's choice for the whole model
with training: the placement of that choice, then trained with the rounding (Q/DQ graph with learned scales)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import onnx_ir as ir

from edgekit.bundle.evidence import PathStep
from edgekit.compiler.compress.int8_placement import NEAREST, Int8Placement, place_candidate
from edgekit.compiler.pipeline.build_job import BuildJob
from edgekit.compiler.pipeline.distilled import Distillation
from edgekit.compiler.pipeline.held_out import evaluate_held_out
from edgekit.compiler.pipeline.int8_evaluation import int8_evidence
from edgekit.compiler.pipeline.quantization_data import QuantizationData
from edgekit.compiler.pipeline.shrunk_graph import (
    INT8,
    TRAINED_INT8,
    ShrunkGraph,
    path_step,
    record_path,
    rejected,
    run_test_samples,
    smaller_variant,
    with_outputs,
)
from edgekit.compiler.pipeline.try_variant import Compiled, try_variant
from edgekit.compiler.pipeline.variant_build import VariantBuild
from edgekit.compiler.quantize.observe.calibrate import observe
from edgekit.compiler.quantize.search.candidates import Candidates, QuantizedCandidate
from edgekit.compiler.quantize.search.measurement import CandidateConfig
from edgekit.compiler.quantize.search.search_context import SearchContext
from edgekit.compiler.quantize.weights.value_digests import WeightCache
from edgekit.errors import EdgeKitError, reason_of


def try_smaller_int8(
    job: BuildJob, graph: ShrunkGraph, variants: Sequence[VariantBuild], data: QuantizationData
) -> list[VariantBuild]:
    """Quantize a smaller model with the configurations of the whole one's int8 variants."""
    search = data.search_context
    context = replace(  # with its own ranges and weights
        search, model=graph.model, observations=observe(graph.model, search.calibration),
        weight_cache=WeightCache(), range_cache={},
    )  # fmt: skip
    tried = []
    for whole in variants:
        variant = smaller_variant(whole, graph.shrunk)
        tried.append(try_variant(variant, job.faults, _compile_searched, job, graph, context, data))
    return tried


def try_trained_int8(
    job: BuildJob,
    graph: ShrunkGraph,
    variants: Sequence[VariantBuild],
    data: QuantizationData,
    distillation: Distillation,
    notify: Callable[[str], None],
) -> list[VariantBuild]:
    """Train a smaller model with int8's rounding: all placements together, each in a part of every batch."""
    if not variants:
        return []
    observations = observe(graph.model, data.search_context.calibration)
    wholes = {_placement_key(whole): whole for whole in variants}
    configs: dict[str, CandidateConfig] = {}
    placements: dict[str, Int8Placement] = {}
    for key, whole in wholes.items():
        assert whole.config is not None
        recipe = replace(NEAREST, ranges=whole.config.recipe.ranges)
        config = configs[key] = replace(whole.config, recipe=recipe)
        placements[key] = place_candidate(
            graph.model, observations, whole.rules, config.placement, recipe, config.floats
        )
    try:
        done = distillation.in_int8(graph.model, placements, notify)
    except EdgeKitError as problem:
        reason = reason_of(problem, for_bundles=True)
        return [rejected(whole, graph.shrunk, reason) for whole in variants]
    length: PathStep = {"epochs": round(done.epochs, 2), "seconds": round(done.seconds, 1)}
    students: dict[str, tuple[ShrunkGraph, QuantizedCandidate]] = {}
    for key, placed in placements.items():
        floats = [str(name) for name in wholes[key].evidence["quantization"]["float"]["names"]]
        untrained = run_test_samples(placed.quantized({}, {}), graph.held_out)
        path = (*graph.path, path_step(INT8, graph.held_out.evaluator.evaluate(untrained)))
        # Verified against its own Q/DQ graph: its weights are not the float student's.
        held_out = with_outputs(graph.held_out, run_test_samples(done.models[key], graph.held_out))
        candidate = QuantizedCandidate(configs[key], placed.rules, placed.plan, done.models[key], floats)
        students[key] = (replace(graph, held_out=held_out, path=path), candidate)
    tried = []
    for whole in variants:
        variant = smaller_variant(whole, graph.shrunk)
        student = students[_placement_key(whole)]
        tried.append(try_variant(variant, job.faults, _compile_trained, job, *student, length, data))
    return tried


def _placement_key(whole: VariantBuild) -> str:
    """Return a key that the profiles of one target mostly share."""
    return f"{whole.target.name}, {whole.config}, {whole.rules!r}"


def _compile_searched(
    variant: VariantBuild, job: BuildJob, graph: ShrunkGraph, context: SearchContext, data: QuantizationData
) -> Compiled:
    """Compile a smaller model with the whole one's configuration."""
    assert variant.config is not None
    with Candidates(context, variant.target, variant.rules, None, "") as candidates:
        compiled = candidates.compile(variant.config)
    judge = partial(_judge, job, graph, compiled.model, data, {"step": INT8})
    return Compiled(compiled.artifact, judge, int8_evidence(data, compiled))


def _compile_trained(
    variant: VariantBuild, job: BuildJob, graph: ShrunkGraph, candidate: QuantizedCandidate,
    length: PathStep, data: QuantizationData,
) -> Compiled:  # fmt: skip
    target, golden = variant.target, graph.held_out.reference.expected[0]
    variant.shrunk = replace(graph.shrunk, golden=golden, outputs_of=variant.name)
    artifact = target.compiler.compile_model(candidate.model, target.profile, target.compiled_as("int8"))
    last: PathStep = {"step": TRAINED_INT8, **length}
    judge = partial(_judge, job, graph, candidate.model, data, last)
    return Compiled(artifact, judge, int8_evidence(data, candidate))


def _judge(
    job: BuildJob,
    graph: ShrunkGraph,
    model: ir.Model,
    data: QuantizationData,
    last: PathStep,
    variant: VariantBuild,
) -> None:
    """Test a variant, and record its path, which ends with ``last`` and the figures of this test."""
    options = replace(job.options, goal=job.options.smaller_goal)
    ran = evaluate_held_out(variant, model, graph.held_out, options)
    if ran is None:
        record_path(variant, graph, math.nan, graph.path)
        return
    fidelity = data.held_out.evaluator.evaluate(ran.outputs)
    last = {**path_step(last["step"], fidelity), **last}
    record_path(variant, graph, fidelity.snr_db, [*graph.path, last])
