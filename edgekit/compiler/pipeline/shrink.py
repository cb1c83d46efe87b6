"""A smaller model by structured pruning, judged on held-out samples and timed on engines."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import onnx_ir as ir

from edgekit.compiler.compress.channel_groups import multiplications, weight_bytes
from edgekit.compiler.compress.goal import ShrinkGoal, shrink_goal
from edgekit.compiler.compress.prune import PrunableGroup, PruningPlan, plan_pruning, prune
from edgekit.compiler.evaluate.fidelity import source_evaluator
from edgekit.compiler.evaluate.kept_outputs import keep_outputs
from edgekit.compiler.evaluate.proof import USED_SAMPLES
from edgekit.compiler.evaluate.relative_time import ratio_to_parent
from edgekit.compiler.evaluate.samples import Sample, load_samples
from edgekit.compiler.evaluate.verify import ReferenceOutputs
from edgekit.compiler.importers.contract import ImportOptions
from edgekit.compiler.importers.conversion import as_source, open_source_model, source_name
from edgekit.compiler.model.onnx_file import save_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.compiler.pipeline.memory_need import Claim, memory_need, model_bytes, seconds_need, unclaimed
from edgekit.compiler.pipeline.shrink_request import ShrinkRequest
from edgekit.compiler.pipeline.shrunk_model import GroupChange, ShrunkModel
from edgekit.compiler.pipeline.try_variant import compile_and_judge, compile_float
from edgekit.compiler.pipeline.variant_build import VariantBuild, run_reference, runs_here
from edgekit.compiler.quantize.observe.calibrate import split
from edgekit.compiler.quantize.placement.float_weights import with_float_weights
from edgekit.errors import MissingDependency, SampleError, UnsupportedError, UsageError
from edgekit.processing.card import load_card
from edgekit.system.progress import counted, listener, stage
from edgekit.target.build_target import BuildTarget, resolve
from edgekit.target.check_support import check_canonical, refuse_unsupported
from edgekit.target.installed_profiles import find_profile, profile_names
from edgekit.target.precisions import FULL_PRECISION

TIMED_SAMPLES = 2
"""Samples that models are verified with on an engine before they are timed."""
LATENCY_STEPS = 6
"""Models that are compiled and timed to reach a latency: the share of multiplications is known to 1/64."""


def shrink_model(request: ShrinkRequest, claim: Claim = unclaimed) -> ShrunkModel:
    """Shrink in this process; ``edgekit.shrink`` documents the arguments and errors.

    ``claim`` is called with the memory and time that the model's values need, before they are computed.
    """
    goal, progress = shrink_goal(request.flops, request.size, request.latency), listener(request.progress)
    card = load_card(request.card) if isinstance(request.card, str | Path) else request.card
    timed = targets_to_time([*request.targets, *([goal.target] if goal.target else [])])
    with stage(progress, "opened") as notify:
        importing = ImportOptions(trust_pickle=request.trust_pickle)
        fixed = {**(card.shapes() if card else {}), **(request.shapes or {})}
        opened = as_source(request.model)
        source, _ = open_source_model(opened, fixed, importing)
        canonical = source.clone()
        run_passes(canonical)
        canonical = with_float_weights(canonical)
        notify(f"{source_name(opened)}  {multiplications(canonical) / 1e6:,.0f} M multiplications")
    sizes = model_bytes(canonical)
    # A pass of second moments holds every value that a layer reads.
    claim(
        memory_need(model_bytes(source), sizes, USED_SAMPLES, len(timed)) + sizes.values,
        seconds_need(canonical, sizes, USED_SAMPLES, len(timed)),
    )
    with stage(progress, "reference") as notify:
        inputs, outputs = signature(source)
        if card:
            card.check(inputs, outputs)
        samples = load_samples(request.samples, inputs, card, USED_SAMPLES)
        parts = split(samples.arrays)
        if parts.shared:
            raise SampleError(
                f"{samples.origin}: at least four different samples are needed; 64 to 128 are better"
            )
        validation, test = (source_evaluator(source, card, part) for part in (parts.validation, parts.test))
        notify(samples.origin)
    with stage(progress, "measured", live=True) as notify:
        plan = plan_pruning(canonical, parts.calibration, parts.validation, validation, notify)
        notify(f"{len(plan.groups)} groups of channels, {len(parts.calibration)} calibration samples")
    timer = ModelTimer(canonical, [parts.test[i] for i in range(min(TIMED_SAMPLES, len(parts.test)))], timed)
    with stage(progress, "pruned", live=True) as notify:
        smaller, removed = _reach(plan, goal, timer, notify)
        notify(f"{multiplications(smaller) / 1e6:,.0f} M multiplications are left")
    with stage(progress, "timed") as notify:
        ratios = timer.ratios(smaller)
        notify(", ".join(f"{name} {ratio:.2f}x" for name, ratio in ratios.items()) or "on no engine")
    reference = Reference(smaller, optimize=True)
    return ShrunkModel(
        name=source_name(opened),
        onnx=save_model(smaller),
        goal=goal,
        multiplications=(multiplications(canonical), multiplications(smaller)),
        weight_bytes=(weight_bytes(canonical), weight_bytes(smaller)),
        fidelity=test.evaluate(keep_outputs(map(reference.run, counted(parts.test, "samples")))),
        task=test.evaluate(test.expected).task,
        test_samples=len(parts.test),
        latency=ratios,
        not_timed=dict(timer.not_timed) if request.targets else {},
        groups=tuple(_change(group, removed[group.name]) for group in plan.groups if group.name in removed),
    )


def _reach(
    plan: PruningPlan, goal: ShrinkGoal, timer: ModelTimer, report: Callable[[str], None]
) -> tuple[ir.Model, dict[str, int]]:
    """Prune to the model that reaches the goal, and return it with the number of units that each group lost.

    Raises:
        UsageError: no model does.
    """
    if goal.kind != "latency":
        pruned = prune(plan, goal.kind, goal.share)
        if pruned is None:
            raise _unreachable(plan, goal, "all groups together are smaller than that")
        return pruned
    if goal.target not in timer.targets:
        raise UsageError(f"{goal.target} cannot be timed: {timer.not_timed.get(goal.target, 'no engine')}")
    low, high, best = 0.0, 1.0, None
    for _ in range(LATENCY_STEPS):
        share = (low + high) / 2
        pruned = prune(plan, "multiplications", share)
        if pruned is None:
            high = share
            continue
        ratio = timer.ratios(pruned[0], goal.target).get(goal.target, math.inf)
        report(f"{100 * share:.0f} % fewer multiplications: {ratio:.2f}x on {goal.target}")
        if ratio <= 1 - goal.share:
            best, high = pruned, share
        else:
            low = share
    if best is None:
        raise _unreachable(plan, goal, f"{100 * low:.0f} % fewer multiplications are not enough")
    return best


def _unreachable(plan: PruningPlan, goal: ShrinkGoal, reason: str) -> UsageError:
    return UsageError(
        f"{goal} cannot be reached: {reason}\n"
        f"  {len(plan.groups)} of {len(plan.channels.groups)} groups of channels can be removed; ask for less"
    )


def _change(group: PrunableGroup, units: int) -> GroupChange:
    channels, count = group.group.channels, len(group.group.units)
    return GroupChange(group.name, count * channels, (count - units) * channels, group.error(units))


class ModelTimer:
    """Compiles and times models against one model, in float32 on one thread.

    Attributes:
        not_timed: Target -> why it is left out.
    """

    def __init__(self, model: ir.Model, samples: Sequence[Sample], targets: Sequence[BuildTarget]) -> None:
        self.not_timed: dict[str, str] = {}
        self._samples = samples
        self._parents, _ = self._timed(model, targets)

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(parent.profile.name for parent in self._parents)

    def ratios(self, model: ir.Model, only: str = "") -> dict[str, float]:
        """Return target -> ratio of another model's time to this model's; ``only``: on this target alone."""
        parents = [parent for parent in self._parents if only in ("", parent.profile.name)]
        variants, reference = self._timed(model, [parent.target for parent in parents])
        timed = {variant.profile.name: variant.to_time for variant in variants}
        return {
            parent.profile.name: ratio_to_parent(timed[parent.profile.name], parent.to_time, reference)
            for parent in parents
            if parent.profile.name in timed
        }

    def _timed(
        self, model: ir.Model, targets: Sequence[BuildTarget]
    ) -> tuple[list[VariantBuild], ReferenceOutputs]:
        """Return a model's variants that an engine ran, and the reference that they were verified against."""
        reference = run_reference(model, *signature(model), self._samples)
        variants = []
        for target in targets:
            variant = VariantBuild(target, FULL_PRECISION)
            try:
                refuse_unsupported("it", model, check_canonical(model, [target]))
                compile_and_judge(variant, compile_float, model, reference)
            except UnsupportedError:
                self.not_timed[variant.profile.name] = "it has nodes that this target does not support"
                continue
            if variant.timed:
                variants.append(variant)
            else:
                self.not_timed[variant.profile.name] = variant.status
        return variants, reference


def targets_to_time(names: Sequence[str]) -> list[BuildTarget]:
    """Return the targets with these names, or all whose engine is installed."""
    every = sorted(set(profile_names().values()))
    targets = [resolve(find_profile(name)) for name in dict.fromkeys(names or every)]
    if names:
        for target in targets:
            target.engine.engine_version()
        return targets
    return [target for target in targets if _has_engine(target) and runs_here(target.profile)]


def _has_engine(target: BuildTarget) -> bool:
    """Return whether its engine can be timed here: a reference executor's times do not count."""
    try:
        target.engine.engine_version()
    except MissingDependency:
        return False
    return True
