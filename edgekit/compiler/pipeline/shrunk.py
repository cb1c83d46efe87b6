"""Variants of smaller models, in addition to those of the whole one: ``--shrink auto``.

plan once -> for each share: remove channels, train (--distil), judge by the accuracy goal, verify for every
target -> int8 as in the whole model -> timed with the others -> kept if faster than more accurate ones
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from edgekit.compiler.compress.goal import share_of
from edgekit.compiler.compress.network_cost import multiplications
from edgekit.compiler.compress.prune import plan_pruning
from edgekit.compiler.evaluate.verify import ReferenceOutputs
from edgekit.compiler.pipeline.build_job import BuildJob
from edgekit.compiler.pipeline.build_options import BuildOptions
from edgekit.compiler.pipeline.distilled import Distillation, refuse_what_cannot_be_trained
from edgekit.compiler.pipeline.faults import Faults
from edgekit.compiler.pipeline.quantization_data import QuantizationData
from edgekit.compiler.pipeline.shrunk_graph import (
    ShrunkGraph,
    rejected,
    shrunk_graph,
    smaller_variant,
    with_fidelity,
)
from edgekit.compiler.pipeline.shrunk_int8 import try_smaller_int8, try_trained_int8
from edgekit.compiler.pipeline.try_variant import compile_float, try_variant
from edgekit.compiler.pipeline.variant_build import Shrunk, VariantBuild, runs_here
from edgekit.errors import EdgeKitError, UsageError, reason_of
from edgekit.system.progress import Notify
from edgekit.target.precisions import AUTO

SHARES: tuple[float, ...] = (0.1, 0.2, 0.3)
"""How many multiplications fewer. A third costs most networks more than int8 does (docs/shrinking.md)."""


def refuse_what_cannot_shrink(
    options: BuildOptions, model: ir.Model, has_samples: bool, quantized: bool
) -> None:
    """Check that the model can be shrunk and judged, and that it can be trained if requested.

    Raises:
        UsageError: the model cannot be shrunk or judged.
        UnsupportedError, MissingDependency: the model cannot be trained.
    """
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
    parents, shares = _parents(variants), _shares(job.options)
    timed = [parent for parent in parents.values() if parent.timed and runs_here(parent.profile)]
    search = data.search_context
    total = multiplications(search.model)
    untimed = [parent for parent in parents.values() if all(parent is not other for other in timed)]
    reason = "smaller models must be timed, and their engine or processor is not available here"
    added = [rejected(parent, _requested_size(total, shares[0]), reason) for parent in untimed]
    if not timed:
        return [*variants, *added]
    wholes = [_int8_variants(variants, parent) for parent in timed]
    plan = plan_pruning(search.model, search.calibration, search.validation, search.evaluator, notify)
    done: set[int] = set()
    for share in shares:
        notify(f"{100 * share:.0f} % fewer multiplications")
        graph = shrunk_graph(plan, share, reference, data.held_out)
        if graph is not None and graph.shrunk.multiplications[1] in done:
            continue  # of a small network the least step may be larger than a share
        if graph is None:
            reason = "all channel groups together are smaller than that"
            added += [rejected(parent, _requested_size(total, share), reason) for parent in timed]
            break
        done.add(graph.shrunk.multiplications[1])
        if distillation is not None:
            try:
                student = distillation.in_float(graph.model, any(wholes), _titled(notify, graph, ""))
            except EdgeKitError as problem:
                reason = reason_of(problem, for_bundles=True)
                added += [with_fidelity(rejected(parent, graph.shrunk, reason), graph) for parent in timed]
                continue
            graph = graph.trained(student.models[""], student.epochs, student.seconds)
        missed = job.options.smaller_goal.missed(graph.fidelity, data.held_out.labelled)
        if missed:  # what loses more channels loses more accuracy
            added += [with_fidelity(rejected(parent, graph.shrunk, missed), graph) for parent in timed]
            break
        quantized: list[VariantBuild] = []
        if distillation is not None:
            first = [group[0] for group in wholes if group]
            report = _titled(notify, graph, ", int8")
            quantized = try_trained_int8(job, graph, first, data, distillation, report)
        for parent, group in zip(timed, wholes, strict=True):
            added.append(_try_float(graph, parent, job.faults))
            if distillation is not None:
                added += [v for v in quantized if v.profile == parent.profile]
            elif group:
                notify(f"{added[-1].name}, and in int8")
                added += try_smaller_int8(job, graph, group, data)
    return [*variants, *added]


def _shares(options: BuildOptions) -> tuple[float, ...]:
    return SHARES if options.shrink == AUTO else (share_of("--shrink", options.shrink),)


def _int8_variants(variants: Sequence[VariantBuild], parent: VariantBuild) -> list[VariantBuild]:
    return [v for v in variants if v.profile == parent.profile and v.config and not v.rejected]


def _titled(notify: Notify, graph: ShrunkGraph, description: str) -> Callable[[str], None]:
    before, after = graph.shrunk.multiplications
    return lambda text: notify(f"{100 * (1 - after / before):.0f} % smaller{description}  {text}")


def _parents(variants: Sequence[VariantBuild]) -> dict[str, VariantBuild]:
    """Map each profile to its float variant (without a config): the first that was not rejected, if there is
    one, because fp32 follows an inaccurate fp16."""
    parent_by_profile: dict[str, VariantBuild] = {}
    for variant in sorted(variants, key=lambda v: v.rejected):
        if variant.artifact.files and variant.config is None:
            parent_by_profile.setdefault(variant.profile.name, variant)
    return parent_by_profile


def _requested_size(size: int, share: float) -> Shrunk:
    """Return the requested size of a smaller model that could not be made."""
    return Shrunk((size, max(round(size * (1 - share)), 1)), share, {})


def _try_float(graph: ShrunkGraph, parent: VariantBuild, faults: Faults) -> VariantBuild:
    """Try the float variant of a smaller model, which is verified against that model's own outputs."""
    variant = smaller_variant(parent, graph.shrunk)
    try_variant(variant, faults, compile_float, graph.model, graph.reference)
    return with_fidelity(variant, graph) if variant.artifact.files else variant
