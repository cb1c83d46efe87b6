"""Int8 of smaller models: the whole model's configuration, with ranges and weights of their own.

without training: the search's choice for the whole model
with training: the placement of that choice, then trained with the rounding (Q/DQ graph with learned scales)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
from edgekit.compiler.quantize.search.candidates import Candidates, CompiledCandidate
from edgekit.compiler.quantize.search.measurement import CandidateConfig
from edgekit.compiler.quantize.search.search_context import SearchContext
from edgekit.compiler.quantize.weights.value_digests import WeightCache
from edgekit.errors import EdgeKitError, reason_of


@dataclass(frozen=True, eq=False)
class _Int8Student:
    """Smaller model that was trained with the rounding of one placement.

    Attributes:
        placement: Placement of the rounding.
        config: Configuration of the whole model's variant, with weights rounded to nearest.
        model: The trained Q/DQ graph.
        path: All steps but the last.
        length: Epochs and seconds of the training, for the last step.
    """

    placement: Int8Placement
    config: CandidateConfig
    model: ir.Model
    path: tuple[PathStep, ...]
    length: PathStep


def int8_of(
    job: BuildJob, graph: ShrunkGraph, variants: Sequence[VariantBuild], data: QuantizationData
) -> list[VariantBuild]:
    """Quantize a smaller model to int8, with the configurations that were the best for the whole one.

    Args:
        job: Holds the rules of each profile and the accuracy goal.
        graph: The smaller model.
        variants: int8 variants of the whole model.
        data: Data that they were quantized and judged with.
    """
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


def trained_int8_of(
    job: BuildJob,
    graph: ShrunkGraph,
    variants: Sequence[VariantBuild],
    data: QuantizationData,
    distillation: Distillation,
    notify: Callable[[str], None],
) -> list[VariantBuild]:
    """Train a smaller model with int8's rounding: all placements together, each in a part of every batch.

    Args:
        job, graph, variants, data: Arguments of :func:`int8_of`.
        distillation: Teacher, samples and length of the training.
        notify: Called with a progress bar.
    """
    if not variants:
        return []
    observations = observe(graph.model, data.search_context.calibration)
    placements: dict[str, Int8Placement] = {}
    configs: dict[str, CandidateConfig] = {}
    keys = []
    for whole in variants:
        rules, config = whole.rules, whole.config
        assert config is not None
        key = f"{whole.target.name}, {config}, {rules!r}"  # profiles of one target mostly have the same
        if key not in placements:
            recipe = replace(NEAREST, ranges=config.recipe.ranges)
            configs[key] = replace(config, recipe=recipe)
            placements[key] = place_candidate(
                graph.model, observations, rules, config.placement, recipe, config.floats
            )
        keys.append(key)
    try:
        done = distillation.in_int8(graph.model, placements, notify)
    except EdgeKitError as problem:
        reason = reason_of(problem, for_bundles=True)
        return [rejected(whole, graph.shrunk, reason) for whole in variants]
    length: PathStep = {"epochs": round(done.epochs, 2), "seconds": round(done.seconds, 1)}
    students = {
        key: _Int8Student(
            placement, configs[key], done.models[key], (*graph.path, _untrained(graph, placement)), length
        )
        for key, placement in placements.items()
    }
    tried = []
    for whole, key in zip(variants, keys, strict=True):
        variant = smaller_variant(whole, graph.shrunk)
        tried.append(try_variant(variant, job.faults, _compile_trained, job, graph, students[key], data))
    return tried


def _untrained(graph: ShrunkGraph, placement: Int8Placement) -> PathStep:
    outputs = run_test_samples(placement.quantized({}, {}), graph.held_out)
    return path_step(INT8, graph.held_out.evaluator.evaluate(outputs))


def _compile_searched(
    variant: VariantBuild, job: BuildJob, graph: ShrunkGraph, context: SearchContext, data: QuantizationData
) -> Compiled:
    """Compile a smaller model with the whole one's configuration."""
    assert variant.config is not None
    with Candidates(context, variant.target, variant.rules, None, "") as candidates:
        compiled = candidates.compile(variant.config)
    judge = partial(_judge, job, graph, compiled.model, data, graph.path, {"step": INT8})
    return Compiled(compiled.artifact, judge, int8_evidence(data, compiled))


def _compile_trained(
    variant: VariantBuild, job: BuildJob, graph: ShrunkGraph, student: _Int8Student, data: QuantizationData
) -> Compiled:
    """Compile a student. It is verified against its own Q/DQ graph: its weights are not the float one's."""
    target, whole = variant.target, variant.parent
    assert whole is not None
    artifact = target.compiler.compile_model(student.model, target.profile, target.compiled_as("int8"))
    floats = [str(name) for name in whole.evidence["quantization"]["float"]["names"]]
    compiled = CompiledCandidate(
        student.config, student.placement.rules, student.placement.plan, student.model, artifact, floats
    )
    outputs = run_test_samples(student.model, graph.held_out)
    variant.shrunk = replace(graph.shrunk, golden=outputs[0], outputs_of=variant.name)
    graph = replace(graph, held_out=with_outputs(graph.held_out, outputs))
    last: PathStep = {"step": TRAINED_INT8, **student.length}
    judge = partial(_judge, job, graph, student.model, data, student.path, last)
    return Compiled(artifact, judge, int8_evidence(data, compiled))


def _judge(
    job: BuildJob,
    graph: ShrunkGraph,
    model: ir.Model,
    data: QuantizationData,
    path: Sequence[PathStep],
    last: PathStep,
    variant: VariantBuild,
) -> None:
    """Test a variant, and record its path, which ends with ``last`` and the figures of this test."""
    options = replace(job.options, goal=job.options.smaller_goal)
    ran = evaluate_held_out(variant, model, graph.held_out, options)
    if ran is None:
        record_path(variant, graph, math.nan, path)
        return
    fidelity = data.held_out.evaluator.evaluate(ran.outputs)
    last = {**path_step(last["step"], fidelity), **last}
    record_path(variant, graph, fidelity.snr_db, [*path, last])
