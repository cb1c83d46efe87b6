"""Variants of smaller models, in addition to those of the whole one: ``--shrink auto``.

plan once -> for each share: remove channels, train (--distil), judge by the accuracy goal, verify for every
target -> int8 as in the whole model -> timed with the others -> kept if faster than more accurate ones
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import onnx_ir as ir

from edgekit.bundle.evidence import PathStep
from edgekit.compiler.compress.channel_groups import multiplications, weight_bytes
from edgekit.compiler.compress.goal import share_of
from edgekit.compiler.compress.int8_placement import NEAREST, Int8Placement, place_candidate
from edgekit.compiler.compress.prune import plan_pruning, prune
from edgekit.compiler.compress.student_training import TrainedStudent
from edgekit.compiler.evaluate.fidelity import Fidelity
from edgekit.compiler.evaluate.kept_outputs import keep_outputs
from edgekit.compiler.evaluate.verify import ReferenceOutputs
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.pipeline.build_job import BuildJob
from edgekit.compiler.pipeline.build_options import BuildOptions
from edgekit.compiler.pipeline.distilled import Distillation, refuse_what_cannot_be_trained
from edgekit.compiler.pipeline.held_out import HeldOut, evaluate_held_out, record_scores
from edgekit.compiler.pipeline.int8_evaluation import int8_evidence
from edgekit.compiler.pipeline.quantization_data import QuantizationData
from edgekit.compiler.pipeline.try_variant import Compiled, compile_float, try_variant
from edgekit.compiler.pipeline.variant_build import Shrunk, VariantBuild, by_profile, run_reference, runs_here
from edgekit.compiler.quantize.observe.calibrate import observe
from edgekit.compiler.quantize.search.candidates import Candidates, CompiledCandidate
from edgekit.compiler.quantize.search.measurement import CandidateConfig
from edgekit.compiler.quantize.weights.value_digests import WeightCache
from edgekit.errors import EdgeKitError, UsageError, reason_of
from edgekit.system.cpu import default_threads
from edgekit.system.progress import Notify, counted
from edgekit.target.precisions import AUTO

SHARES: tuple[float, ...] = (0.1, 0.2, 0.3)
"""How many multiplications fewer. A third costs most networks more than int8 does (docs/shrinking.md)."""
PRUNED, DISTILLED, INT8, TRAINED_INT8 = "channels removed", "distilled", "int8", "int8, trained"
"""The steps, as they are called in manifests and tables."""
UNTIMED = "smaller models must be timed, and their engine or processor is not available here"


@dataclass(frozen=True, eq=False)
class ShrunkGraph:
    """Model with fewer channels.

    Attributes:
        model: The canonical float model.
        shrunk: Manifest data for its variants.
        weight_bytes: Bytes of the weights, before and after.
        reference: Its own outputs for the samples that variants are verified with.
        held_out: Its own outputs for the test samples; the evaluator and the labels are the whole model's.
        fidelity: Fidelity to the whole model, on the test samples.
        path: Steps so far, with their figures; the last one's figures are ``fidelity``.
    """

    model: ir.Model
    shrunk: Shrunk
    weight_bytes: tuple[int, int]
    reference: ReferenceOutputs
    held_out: HeldOut
    fidelity: Fidelity
    path: tuple[PathStep, ...]


def refuse_what_cannot_shrink(
    options: BuildOptions, model: ir.Model, has_samples: bool, quantized: bool
) -> None:
    """Check that the model can be shrunk and judged, and that it can be trained if requested."""
    if not options.shrink:
        return
    if not has_samples:
        raise UsageError(
            "--shrink needs samples to fit and judge smaller models: add --samples with 64 to 128 typical "
            "inputs"
        )
    if quantized:
        raise UsageError(
            "--shrink needs a float model, and this one is quantized; pass the original float model"
        )
    refuse_what_cannot_be_trained(options, model)


def add_shrunk(
    job: BuildJob,
    variants: Sequence[VariantBuild],
    data: QuantizationData,
    reference: ReferenceOutputs,
    distillation: Distillation | None,
    notify: Notify,
) -> list[VariantBuild]:
    """Return the variants, each profile's float parent first, with those of smaller models after them.

    Raises:
        UsageError: no channels of the model can be removed.
    """
    search, shrink = data.search_context, job.options.shrink
    shares = SHARES if shrink == AUTO else (share_of("--shrink", shrink),)
    groups, total = by_profile(variants), multiplications(search.model)
    parents = _float_parents(groups.values())
    timed = [v for v in parents if v.timed and runs_here(v.profile)]
    untimed = [v for v in parents if not (v.timed and runs_here(v.profile))]
    added = _rejected(untimed, _requested_size(total, shares[0]), UNTIMED)
    if not timed:
        return [*variants, *added]
    int8 = [[v for v in groups[p.profile.name] if v.config and not v.rejected] for p in timed]
    wholes = [v for group in int8 for v in (group[:1] if distillation else group)]  # the fastest is trained
    plan = plan_pruning(search.model, search.calibration, search.validation, search.evaluator, notify)
    done: set[int] = set()
    for share in shares:
        notify(f"{100 * share:.0f} % fewer multiplications")
        pruned = prune(plan, "multiplications", share)
        if pruned is None:
            reason = "all channel groups together are smaller than that"
            added += _rejected(timed, _requested_size(total, share), reason)
            break
        model, size = pruned[0], multiplications(pruned[0])
        if size in done:
            continue  # of a small network the least step may be larger than a share
        done.add(size)
        shrunk, sizes = Shrunk((total, size), share, {}), (weight_bytes(plan.model), weight_bytes(model))
        graph = _run_graph(model, shrunk, sizes, reference, data.held_out, PRUNED)
        if distillation is not None:
            try:
                student = distillation.in_float(graph.model, bool(wholes), _titled(notify, graph, ""))
            except EdgeKitError as problem:
                added += _rejected(timed, graph.shrunk, reason_of(problem, for_bundles=True), graph)
                continue
            graph = _trained(graph, student)
        missed = job.options.smaller_goal.missed(graph.fidelity, data.held_out.labelled)
        if missed:  # what loses more channels loses more accuracy
            added += _rejected(timed, graph.shrunk, missed, graph)
            break
        tried = [_try_float(job, graph, parent) for parent in timed]
        if wholes and distillation is not None:
            tried += _try_trained_int8(job, graph, wholes, data, distillation, notify)
        elif wholes:
            tried += _try_int8(job, graph, wholes, data, notify)
        added += [variant for parent in timed for variant in tried if variant.profile == parent.profile]
    return [*variants, *added]


def _float_parents(groups: Iterable[Sequence[VariantBuild]]) -> list[VariantBuild]:
    """Return each profile's float variant (without a config): the first that was not rejected, if there is
    one, because fp32 follows an inaccurate fp16."""
    floats = ([v for v in group if v.artifact.files and v.config is None] for group in groups)
    return [min(group, key=lambda v: v.rejected) for group in floats if group]


def _requested_size(size: int, share: float) -> Shrunk:
    """Return the requested size of a smaller model that could not be made."""
    return Shrunk((size, max(round(size * (1 - share)), 1)), share, {})


def _titled(notify: Notify, graph: ShrunkGraph, description: str) -> Callable[[str], None]:
    before, after = graph.shrunk.multiplications
    return lambda text: notify(f"{100 * (1 - after / before):.0f} % smaller{description}  {text}")


def _run_graph(
    model: ir.Model,
    shrunk: Shrunk,
    sizes: tuple[int, int],
    reference: ReferenceOutputs,
    held_out: HeldOut,
    step: str,
) -> ShrunkGraph:
    """Run a smaller model on the samples of the references, whose outputs are the whole model's."""
    own = run_reference(model, reference.inputs, reference.outputs, reference.samples)
    held_out = _with_outputs_of(model, held_out)
    fidelity = held_out.evaluator.evaluate(held_out.reference.expected)
    shrunk = replace(shrunk, golden=own.expected[0])
    return ShrunkGraph(model, shrunk, sizes, own, held_out, fidelity, (_path_step(step, fidelity),))


def _trained(graph: ShrunkGraph, student: TrainedStudent) -> ShrunkGraph:
    model = student.models[""]
    trained = _run_graph(model, graph.shrunk, graph.weight_bytes, graph.reference, graph.held_out, DISTILLED)
    return replace(trained, path=(*graph.path, _path_step(DISTILLED, trained.fidelity, student)))


def _with_outputs_of(model: ir.Model, held_out: HeldOut) -> HeldOut:
    """Return the test samples with the outputs of a smaller model, or of its Q/DQ graph, which its variants
    are verified against."""
    run = Reference(model, threads=default_threads(), optimize=True).run
    outputs = keep_outputs(map(run, counted(held_out.reference.samples, "samples")))
    return replace(held_out, reference=replace(held_out.reference, expected=outputs))


def _path_step(name: str, fidelity: Fidelity, student: TrainedStudent | None = None) -> PathStep:
    """Return a step with its figures on the test samples, and the length of its training."""
    task = fidelity.task.as_json() if fidelity.task is not None else None
    step: PathStep = {"step": name, "agreement": fidelity.score.as_json(), "task": task}
    if student is not None:
        step |= {"epochs": round(student.epochs, 2), "seconds": round(student.seconds, 1)}
    return step


def _smaller_variant(whole: VariantBuild, shrunk: Shrunk) -> VariantBuild:
    """Return a smaller model's variant, not compiled yet, for a variant of the whole model."""
    return VariantBuild(whole.target, whole.precision, whole, shrunk=shrunk, config=whole.config)


def _rejected(
    wholes: Sequence[VariantBuild], shrunk: Shrunk, reason: str, graph: ShrunkGraph | None = None
) -> list[VariantBuild]:
    """Return rejected variants without an artifact, with the figures of a graph that was made."""
    variants = [_smaller_variant(whole, shrunk) for whole in wholes]
    for variant in variants:
        variant.reject(reason)
        if graph is not None:
            _record_graph(variant, graph)
    return variants


def _record_graph(variant: VariantBuild, graph: ShrunkGraph) -> None:
    record_scores(variant, graph.fidelity, len(graph.held_out.reference.samples), graph.held_out)
    _record_path(variant, graph, graph.fidelity.snr_db, graph.path)


def _record_path(variant: VariantBuild, graph: ShrunkGraph, snr_db: float, path: Sequence[PathStep]) -> None:
    variant.evidence["shrunk"] = {
        "weight_bytes": list(graph.weight_bytes),
        "snr_db": round(snr_db, 1) if math.isfinite(snr_db) else None,
        "parent": variant.parent.name if variant.parent is not None else "",
        "path": list(path),
    }


def _try_float(job: BuildJob, graph: ShrunkGraph, parent: VariantBuild) -> VariantBuild:
    variant = _smaller_variant(parent, graph.shrunk)
    try_variant(variant, job.faults, compile_float, graph.model, graph.reference)
    if variant.artifact.files:
        _record_graph(variant, graph)
    return variant


def _try_int8(
    job: BuildJob, graph: ShrunkGraph, wholes: Sequence[VariantBuild], data: QuantizationData, notify: Notify
) -> list[VariantBuild]:
    """Quantize a smaller model with the whole one's configurations, and ranges and weights of its own."""
    search = data.search_context
    context = replace(
        search, model=graph.model, observations=observe(graph.model, search.calibration),
        weight_cache=WeightCache(), range_cache={},
    )  # fmt: skip

    def compile_searched(variant: VariantBuild) -> CompiledCandidate:
        notify(variant.name)
        assert variant.config is not None
        with Candidates(context, variant.target, variant.rules, None, "") as candidates:
            return candidates.compile(variant.config)

    return [_try_candidate(job, graph, whole, data, compile_searched) for whole in wholes]


def _try_trained_int8(
    job: BuildJob,
    graph: ShrunkGraph,
    wholes: Sequence[VariantBuild],
    data: QuantizationData,
    distillation: Distillation,
    notify: Notify,
) -> list[VariantBuild]:
    """Train a smaller model with int8's rounding: all placements together, each in a part of every batch."""
    observations = observe(graph.model, data.search_context.calibration)
    placements: dict[str, Int8Placement] = {}
    for whole in wholes:
        config = _nearest(whole)
        placements[_placement_key(whole)] = place_candidate(
            graph.model, observations, whole.rules, config.placement, config.recipe, config.floats
        )
    try:
        student = distillation.in_int8(graph.model, placements, _titled(notify, graph, ", int8"))
    except EdgeKitError as problem:
        return _rejected(wholes, graph.shrunk, reason_of(problem, for_bundles=True))
    graphs: dict[str, ShrunkGraph] = {}
    for key, placed in placements.items():
        untrained = _with_outputs_of(placed.quantized({}, {}), graph.held_out)
        step = _path_step(INT8, graph.held_out.evaluator.evaluate(untrained.reference.expected))
        # Verified against its own Q/DQ graph: its weights are not the float student's.
        held_out = _with_outputs_of(student.models[key], graph.held_out)
        graphs[key] = replace(graph, held_out=held_out, path=(*graph.path, step))

    def compile_trained(variant: VariantBuild) -> CompiledCandidate:
        key, target, whole = _placement_key(variant), variant.target, variant.parent
        assert whole is not None
        floats = [str(name) for name in whole.evidence["quantization"]["float"]["names"]]
        placed, model = placements[key], student.models[key]
        artifact = target.compiler.compile_model(model, target.profile, target.compiled_as("int8"))
        return CompiledCandidate(_nearest(variant), placed.rules, placed.plan, model, floats, artifact)

    return [
        _try_candidate(job, graphs[_placement_key(whole)], whole, data, compile_trained, student)
        for whole in wholes
    ]


def _nearest(variant: VariantBuild) -> CandidateConfig:
    """Return its configuration with weights rounded to nearest, which training starts from."""
    assert variant.config is not None
    return replace(variant.config, recipe=replace(NEAREST, ranges=variant.config.recipe.ranges))


def _placement_key(variant: VariantBuild) -> str:
    """Return a key that the profiles of one target mostly share."""
    return f"{variant.target.name}, {variant.config}, {variant.rules!r}"


def _try_candidate(
    job: BuildJob,
    graph: ShrunkGraph,
    whole: VariantBuild,
    data: QuantizationData,
    compile_candidate: Callable[[VariantBuild], CompiledCandidate],
    student: TrainedStudent | None = None,
) -> VariantBuild:
    """Try an int8 variant of a smaller model on the test samples, and record the path that led to it."""
    variant = _smaller_variant(whole, graph.shrunk)
    options = replace(job.options, goal=job.options.smaller_goal)
    if student is not None:
        golden = graph.held_out.reference.expected[0]
        variant.shrunk = replace(graph.shrunk, golden=golden, outputs_of=variant.name)

    def compile_variant(variant: VariantBuild) -> Compiled:
        candidate = compile_candidate(variant)
        judge = partial(judge_variant, candidate.model)
        return Compiled(candidate.artifact, judge, int8_evidence(data, candidate))

    def judge_variant(model: ir.Model, variant: VariantBuild) -> None:
        ran = evaluate_held_out(variant, model, graph.held_out, options)
        if ran is None:
            _record_path(variant, graph, math.nan, graph.path)
            return
        fidelity = graph.held_out.evaluator.evaluate(ran.outputs)
        step = _path_step(INT8 if student is None else TRAINED_INT8, fidelity, student)
        _record_path(variant, graph, fidelity.snr_db, [*graph.path, step])

    return try_variant(variant, job.faults, compile_variant)
