"""Variants of a smaller model, beside those of the whole one: ``--shrink auto``.

plan once -> for each share: remove channels, judge by the accuracy goal, verify for every target
-> int8 as the whole model has it -> timed with the others -> kept where they are worth it
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import onnx_ir as ir

from edgekit.compress.network_cost import multiplications, weight_bytes
from edgekit.compress.prune import PruningPlan, allocate, plan_pruning, pruned_model
from edgekit.errors import EdgeKitError, UsageError, reason_of
from edgekit.evaluate.fidelity import Fidelity
from edgekit.evaluate.relative_time import FASTER, ratio_to_parent
from edgekit.evaluate.verify import ReferenceOutputs
from edgekit.model.reference import Reference
from edgekit.pipeline.build_options import BuildOptions
from edgekit.pipeline.faults import Fault, Faults
from edgekit.pipeline.held_out import HeldOut, evaluate_held_out, note_scores
from edgekit.pipeline.int8_evaluation import int8_evidence
from edgekit.pipeline.quantization_data import QuantizationData
from edgekit.pipeline.variant_build import (
    Shrunk,
    VariantBuild,
    build_variant,
    lost_variant,
    run_reference,
    runs_here,
)
from edgekit.quantize.observe.calibrate import observe
from edgekit.quantize.search.candidates import Candidates
from edgekit.quantize.search.search_context import SearchContext
from edgekit.quantize.weights.value_digests import WeightCache
from edgekit.system.cpu import default_threads
from edgekit.system.timings import files_digest
from edgekit.target.quant_rules import Rules

SHARES: tuple[float, ...] = (0.1, 0.2, 0.3)
"""How many multiplications fewer. A third costs most networks more than int8 does (docs/shrinking.md)."""

Say = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class ShrunkGraph:
    """The model with fewer channels.

    Attributes:
        model: Canonical, float.
        shrunk: For its variants.
        weight_bytes: Before and after.
        reference: Its own outputs for the samples that variants are verified with.
        held_out: Its own outputs for the test samples; the evaluator and the labels are the whole model's.
        fidelity: To the whole model, on the test samples.
    """

    model: ir.Model
    shrunk: Shrunk
    weight_bytes: tuple[int, int]
    reference: ReferenceOutputs
    held_out: HeldOut
    fidelity: Fidelity


def refuse_what_cannot_shrink(options: BuildOptions, has_samples: bool, quantized: bool) -> None:
    """Check that there is something to shrink, and to judge by.

    Raises:
        UsageError: there is not.
    """
    if not options.shrink:
        return
    if not has_samples:
        raise UsageError(
            "--shrink fits and judges smaller models on samples: give --samples, 64 to 128 inputs like those "
            "that the model will see"
        )
    if quantized:
        raise UsageError("--shrink is for float models, and this one is quantized; give the one it came from")


def add_shrunk(
    variants: Sequence[VariantBuild],
    data: QuantizationData,
    reference: ReferenceOutputs,
    rules: Mapping[str, Rules],
    options: BuildOptions,
    faults: Faults,
    say: Say,
) -> list[VariantBuild]:
    """The variants, with those of smaller models after them.

    Args:
        variants: Of the whole model, each profile's float parent first.
        data: What the model is pruned, quantized and judged with.
        reference: The whole model's outputs for the samples that variants are verified with.
        rules: Profile name -> its quantization rules, where int8 is asked for.
        options: Holds the accuracy goal.
        faults: One met costs one variant.
        say: Called with progress messages.

    Raises:
        UsageError: no channels of the model can be removed.
    """
    parents = _parents(variants)
    timed = [parent for parent in parents.values() if parent.timed and runs_here(parent.profile)]
    search = data.search_context
    of = multiplications(search.model)
    untimed = [parent for parent in parents.values() if all(parent is not other for other in timed)]
    why = "a smaller model is kept only where it is timed, and its engine or processor is not here"
    added = [_rejected(parent, _asked(of, SHARES[0]), why) for parent in untimed]
    if not timed:
        return [*variants, *added]
    plan = plan_pruning(search.model, search.calibration, search.validation, search.evaluator, say)
    done: set[int] = set()
    for share in SHARES:
        say(f"{100 * share:.0f} % fewer multiplications")
        graph = _shrunk_graph(plan, share, reference, data.held_out)
        if graph is not None and graph.shrunk.multiplications[1] in done:
            continue  # of a small network the least step may be larger than a share
        if graph is None:
            why = "all groups of channels together do not have that much"
            added += [_rejected(parent, _asked(of, share), why) for parent in timed]
            break
        done.add(graph.shrunk.multiplications[1])
        missed = options.goal.missed(graph.fidelity, data.held_out.labelled)
        if missed:  # what loses more channels loses more accuracy
            added += [_judged(_rejected(parent, graph.shrunk, missed), graph) for parent in timed]
            break
        for parent in timed:
            added.append(_float(graph, parent, faults))
            wholes = [v for v in variants if v.profile == parent.profile and v.config and not v.rejected]
            if wholes:
                say(f"{_name(parent, graph.shrunk)}, and in int8")
                context = _context(search, graph.model)
                own = rules[parent.profile.name]
                added += [_int8(graph, context, own, whole, data, options, faults) for whole in wholes]
    return [*variants, *added]


def select_shrunk(variants: Sequence[VariantBuild], reference: ReferenceOutputs) -> list[VariantBuild]:
    """Reject smaller variants, once all are timed, that are not faster than every more accurate one.

    Args:
        variants: Of the whole model and of smaller ones; the latter are changed.
        reference: Its first sample is timed.
    """
    kept = [v for v in variants if not v.rejected and v.timed and v.shrunk is None]
    smaller = [v for v in variants if not v.rejected and v.shrunk is not None]
    for variant in sorted(smaller, key=lambda v: (-_accuracy(v), _milliseconds(v))):
        if not variant.timed:
            variant.reject("it could not be timed here")
        elif variant.parent is not None and variant.parent.rejected:
            variant.reject(f"{variant.parent.name} was rejected, and this is made from it")
        elif (better := _fastest_better(variant, kept)) is not None:
            ratio = ratio_to_parent(variant.to_time, better.to_time, reference)
            if ratio > FASTER:
                variant.reject(f"{ratio:.2f}x the time of {better.name}, which is more accurate")
        if not variant.rejected:
            kept.append(variant)
    return list(variants)


def _fastest_better(variant: VariantBuild, kept: Sequence[VariantBuild]) -> VariantBuild | None:
    """The fastest of those of the same profile that are no less accurate."""
    own = [v for v in kept if v.profile == variant.profile and _accuracy(v) >= _accuracy(variant)]
    return min(own, key=_milliseconds, default=None)


def _accuracy(variant: VariantBuild) -> float:
    """By the fidelity to the whole float model; infinite where it computes the same."""
    agreement = variant.evidence.get("agreement")
    if agreement is None or agreement["value"] is None:
        return math.inf
    return float(agreement["value"])


def _milliseconds(variant: VariantBuild) -> float:
    timing = variant.evidence.get("timing")
    return float(timing["min_ms"]) if timing else math.inf


def _parents(variants: Sequence[VariantBuild]) -> dict[str, VariantBuild]:
    """Profile -> its float variant: the first with a config is int8."""
    found: dict[str, VariantBuild] = {}
    for variant in variants:
        if variant.artifact.files and variant.config is None:
            found.setdefault(variant.profile.name, variant)
    return found


def _asked(of: int, share: float) -> Shrunk:
    """What a smaller model was to have, where there is none."""
    return Shrunk((of, max(round(of * (1 - share)), 1)), share, {})


def _shrunk_graph(
    plan: PruningPlan, share: float, reference: ReferenceOutputs, held_out: HeldOut
) -> ShrunkGraph | None:
    """The model with a share of its multiplications removed; None if its channels do not have that much."""
    before = multiplications(plan.model)
    removed = allocate(plan, "multiplications", share, before)
    if removed is None:
        return None
    model = pruned_model(plan, removed)
    own = run_reference(model, reference.inputs, reference.outputs, reference.samples)
    run = Reference(model, threads=default_threads(), optimize=True).run
    outputs = [run(sample) for sample in held_out.reference.samples]
    return ShrunkGraph(
        model,
        Shrunk((before, multiplications(model)), share, own.expected[0]),
        (weight_bytes(plan.model), weight_bytes(model)),
        own,
        replace(held_out, reference=replace(held_out.reference, expected=outputs)),
        held_out.evaluator.evaluate(outputs),
    )


def _float(graph: ShrunkGraph, parent: VariantBuild, faults: Faults) -> VariantBuild:
    """The float variant of a smaller model: verified against that model's own outputs."""
    name = _name(parent, graph.shrunk)
    build = partial(build_variant, graph.model, parent.target, parent.precision, graph.reference, ())
    found = faults.contain(parent.profile.name, name, build)
    if isinstance(found, Fault):
        lost = lost_variant(name, parent.target, parent.precision, parent, found)
        return replace(lost, shrunk=graph.shrunk)
    found.name, found.parent = name, parent
    return _judged(found, graph)


def _judged(variant: VariantBuild, graph: ShrunkGraph) -> VariantBuild:
    """With the fidelity of the smaller model to the whole one."""
    variant.shrunk = graph.shrunk
    note_scores(variant, graph.fidelity, len(graph.held_out.reference.samples), graph.held_out)
    _note(variant, graph, graph.fidelity.snr_db)
    return variant


def _note(variant: VariantBuild, graph: ShrunkGraph, snr_db: float) -> None:
    variant.evidence["shrunk"] = {
        "weight_bytes": list(graph.weight_bytes),
        "snr_db": round(snr_db, 1) if math.isfinite(snr_db) else None,
        "parent": variant.parent.name if variant.parent is not None else "",
    }


def _context(search: SearchContext, model: ir.Model) -> SearchContext:
    """What int8 of a smaller model is compiled from: its own ranges and weights."""
    observations = observe(model, search.calibration)
    return replace(search, model=model, observations=observations, weight_cache=WeightCache(), range_cache={})


def _int8(
    graph: ShrunkGraph,
    context: SearchContext,
    rules: Rules,
    whole: VariantBuild,
    data: QuantizationData,
    options: BuildOptions,
    faults: Faults,
) -> VariantBuild:
    """A smaller model in int8, by the choice that was the best for the whole one."""
    name = _name(whole, graph.shrunk)
    build = partial(_build_int8, name, graph, context, rules, whole, data, options)
    found = faults.contain(whole.profile.name, name, build)
    if isinstance(found, Fault):
        found = lost_variant(name, whole.target, whole.precision, whole, found)
    found.shrunk = graph.shrunk
    return found


def _build_int8(
    name: str,
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
        return _rejected(whole, graph.shrunk, reason_of(problem, for_bundles=True))
    artifact = compiled.artifact
    evidence = int8_evidence(data, compiled)
    digest = files_digest(artifact.files)
    variant = VariantBuild(name, whole.target, whole.precision, artifact, digest, evidence, whole)
    ran = evaluate_held_out(variant, compiled.model, graph.held_out, options)
    snr_db = data.held_out.evaluator.snr_db(ran.outputs) if ran is not None else math.nan
    _note(variant, graph, snr_db)
    return variant


def _rejected(parent: VariantBuild, shrunk: Shrunk, why: str) -> VariantBuild:
    """A rejected variant without an artifact."""
    fault, name = Fault(why, is_bug=False), _name(parent, shrunk)
    return replace(lost_variant(name, parent.target, parent.precision, parent, fault), shrunk=shrunk)


def _name(whole: VariantBuild, shrunk: Shrunk) -> str:
    return f"{whole.profile.name}-shrunk{100 * shrunk.share:.0f}-{whole.precision}"
