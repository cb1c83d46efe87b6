"""Int8 of smaller models: the whole model's configuration, with ranges and weights of their own.

without training: the search's choice for the whole model
with training: the placement of that choice, then trained with the rounding (Q/DQ graph with learned scales)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import onnx_ir as ir

from edgekit.bundle.evidence import PathStep
from edgekit.compiler.compress.int8_placement import NEAREST, Int8Placement, place_candidate
from edgekit.compiler.pipeline.build_options import BuildOptions
from edgekit.compiler.pipeline.distilled import Distillation
from edgekit.compiler.pipeline.faults import Fault, Faults
from edgekit.compiler.pipeline.held_out import evaluate_held_out
from edgekit.compiler.pipeline.int8_evaluation import int8_evidence
from edgekit.compiler.pipeline.quantization_data import QuantizationData
from edgekit.compiler.pipeline.shrunk_graph import (
    INT8,
    TRAINED_INT8,
    ShrunkGraph,
    answers,
    name_of,
    note,
    path_step,
    rejected,
    with_answers,
)
from edgekit.compiler.pipeline.variant_build import VariantBuild, lost_variant
from edgekit.compiler.quantize.observe.calibrate import observe
from edgekit.compiler.quantize.search.candidates import Candidates, CompiledCandidate
from edgekit.compiler.quantize.search.measurement import CandidateConfig
from edgekit.compiler.quantize.search.search_context import SearchContext
from edgekit.compiler.quantize.weights.value_digests import WeightCache
from edgekit.errors import EdgeKitError, reason_of
from edgekit.system.timings import files_digest
from edgekit.target.quant_rules import Rules


@dataclass(frozen=True, eq=False)
class _Int8Student:
    """Smaller model that was trained with the rounding of one placement.

    Attributes:
        placement: Placement of the rounding.
        config: Configuration of the whole model's variant, with weights rounded to nearest.
        model: The trained Q/DQ graph.
        path: All steps but the last.
        epochs, seconds: Length of the training.
    """

    placement: Int8Placement
    config: CandidateConfig
    model: ir.Model
    path: tuple[PathStep, ...]
    epochs: float
    seconds: float


def int8_of(
    graph: ShrunkGraph,
    variants: Sequence[VariantBuild],
    data: QuantizationData,
    rules: Mapping[str, Rules],
    options: BuildOptions,
    faults: Faults,
) -> list[VariantBuild]:
    """Quantize a smaller model to int8, with the configurations that were the best for the whole one.

    Args:
        graph: The smaller model.
        variants: int8 variants of the whole model.
        data: Data that they were quantized and judged with.
        rules: Profile name -> its quantization rules.
        options: Options with the accuracy goal.
        faults: Recorder of faults; a fault costs one variant.
    """
    context = _context(data.search_context, graph.model) if variants else data.search_context
    quantized = []
    for whole in variants:
        int8_rules = rules[whole.profile.name]
        build = partial(_searched, graph, context, int8_rules, whole, data, options)
        quantized.append(_contained(graph, whole, faults, build))
    return quantized


def trained_int8_of(
    graph: ShrunkGraph,
    variants: Sequence[VariantBuild],
    data: QuantizationData,
    rules: Mapping[str, Rules],
    options: BuildOptions,
    distillation: Distillation,
    faults: Faults,
    notify: Callable[[str], None],
) -> list[VariantBuild]:
    """Train a smaller model with int8's rounding: all placements together, each in a part of every batch.

    Args:
        graph, wholes, data, rules, options, faults: Arguments of :func:`int8_of`.
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
        assert whole.config is not None
        int8_rules, config = rules[whole.profile.name], whole.config
        key = f"{whole.target.name}, {config}, {int8_rules!r}"  # profiles of one target mostly have the same
        if key not in placements:
            recipe = replace(NEAREST, ranges=config.recipe.ranges)
            configs[key] = replace(config, recipe=recipe)
            placements[key] = place_candidate(
                graph.model, observations, int8_rules, config.placement, recipe, config.floats
            )
        keys.append(key)
    try:
        done = distillation.in_int8(graph.model, placements, notify)
    except EdgeKitError as problem:
        reason = reason_of(problem, for_bundles=True)
        return [rejected(whole, graph.shrunk, reason) for whole in variants]
    students = {
        key: _Int8Student(
            placement, configs[key], done.models[key], (*graph.path, _untrained(graph, placement)),
            done.epochs, done.seconds,
        )
        for key, placement in placements.items()
    }  # fmt: skip
    return [
        _contained(graph, whole, faults, partial(_trained, graph, students[key], whole, data, options))
        for whole, key in zip(variants, keys, strict=True)
    ]


def _untrained(graph: ShrunkGraph, placement: Int8Placement) -> PathStep:
    outputs = answers(placement.quantized({}, {}), graph.held_out)
    return path_step(INT8, graph.held_out.evaluator.evaluate(outputs))


def _contained(
    graph: ShrunkGraph, whole: VariantBuild, faults: Faults, build: Callable[[], VariantBuild]
) -> VariantBuild:
    name = name_of(whole, graph.shrunk)
    variant = faults.contain(whole.profile.name, name, build)
    if isinstance(variant, Fault):
        variant = lost_variant(name, whole.target, whole.precision, whole, variant)
    variant.shrunk = variant.shrunk or graph.shrunk
    return variant


def _context(search: SearchContext, model: ir.Model) -> SearchContext:
    """Return the search context of a smaller model, with its own ranges and weights."""
    observations = observe(model, search.calibration)
    return replace(search, model=model, observations=observations, weight_cache=WeightCache(), range_cache={})


def _searched(
    graph: ShrunkGraph,
    context: SearchContext,
    rules: Rules,
    whole: VariantBuild,
    data: QuantizationData,
    options: BuildOptions,
) -> VariantBuild:
    assert whole.config is not None
    try:
        with Candidates(context, whole.target, rules, None, "") as candidates:
            compiled = candidates.compile(whole.config)
    except EdgeKitError as problem:
        return rejected(whole, graph.shrunk, reason_of(problem, for_bundles=True))
    return _tested(graph, whole, compiled, data, options, graph.path, path_step_name=INT8)


def _trained(
    graph: ShrunkGraph,
    student: _Int8Student,
    whole: VariantBuild,
    data: QuantizationData,
    options: BuildOptions,
) -> VariantBuild:
    """Build a variant, and verify it against its own Q/DQ graph: its weights are not the float student's."""
    target = whole.target
    try:
        artifact = target.compiler.compile_model(student.model, target.profile, target.compiled_as("int8"))
    except EdgeKitError as problem:
        return rejected(whole, graph.shrunk, reason_of(problem, for_bundles=True))
    floats = [str(name) for name in whole.evidence["quantization"]["float"]["names"]]
    compiled = CompiledCandidate(
        student.config, student.placement.rules, student.placement.plan, student.model, artifact, floats
    )
    outputs = answers(student.model, graph.held_out)
    updated = replace(
        graph,
        held_out=with_answers(graph.held_out, outputs),
        shrunk=replace(graph.shrunk, golden=outputs[0], outputs_of=name_of(whole, graph.shrunk)),
    )
    variant = _tested(updated, whole, compiled, data, options, student.path, path_step_name=TRAINED_INT8)
    last = variant.evidence["shrunk"]["path"][-1]
    last["epochs"], last["seconds"] = round(student.epochs, 2), round(student.seconds, 1)
    variant.shrunk = updated.shrunk
    return variant


def _tested(
    graph: ShrunkGraph,
    whole: VariantBuild,
    compiled: CompiledCandidate,
    data: QuantizationData,
    options: BuildOptions,
    path: Sequence[PathStep],
    *,
    path_step_name: str,
) -> VariantBuild:
    name, artifact = name_of(whole, graph.shrunk), compiled.artifact
    evidence, digest = int8_evidence(data, compiled), files_digest(artifact.files)
    variant = VariantBuild(name, whole.target, whole.precision, artifact, digest, evidence, whole)
    held_to = replace(options, goal=options.smaller_goal)
    ran = evaluate_held_out(variant, compiled.model, graph.held_out, held_to)
    if ran is None:
        note(variant, graph, math.nan, path)
        return variant
    fidelity = data.held_out.evaluator.evaluate(ran.outputs)
    note(variant, graph, fidelity.snr_db, [*path, path_step(path_step_name, fidelity)])
    return variant
