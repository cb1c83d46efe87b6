"""A smaller model by structured pruning, judged on held-out samples and timed on engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import onnx_ir as ir

from edgekit.compiler.compress.goal import ShrinkGoal, shrink_goal
from edgekit.compiler.compress.network_cost import multiplications, weight_bytes
from edgekit.compiler.compress.prune import PruningPlan, allocate, plan_pruning, pruned_model
from edgekit.compiler.evaluate.kept_outputs import keep_outputs
from edgekit.compiler.evaluate.relative_time import ratio_to_parent
from edgekit.compiler.evaluate.samples import Sample, load_samples
from edgekit.compiler.evaluate.source_evaluator import source_evaluator
from edgekit.compiler.evaluate.verify import ReferenceOutputs
from edgekit.compiler.importers.contract import ImportOptions
from edgekit.compiler.importers.conversion import as_source, open_source_model, source_name
from edgekit.compiler.model.onnx_file import save_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.compiler.pipeline.memory_need import Claim, memory_need, model_bytes, seconds_need, unclaimed
from edgekit.compiler.pipeline.quantization_data import CALIBRATION_SAMPLES
from edgekit.compiler.pipeline.shrink_request import ShrinkRequest
from edgekit.compiler.pipeline.shrunk_model import GroupChange, ShrunkModel
from edgekit.compiler.pipeline.try_variant import compile_and_judge, compile_float
from edgekit.compiler.pipeline.variant_build import VariantBuild, run_reference, runs_here
from edgekit.compiler.quantize.observe.calibrate import split
from edgekit.compiler.quantize.placement.float_weights import with_float_weights
from edgekit.errors import MissingDependency, SampleError, UnsupportedError, UsageError
from edgekit.processing.card import Card
from edgekit.system.progress import counted, stage
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
    goal, progress = shrink_goal(request.flops, request.size, request.latency), request.progress
    loaded = _loaded_card(request.card)
    timed = targets_to_time([*request.targets, *([goal.target] if goal.target else [])])
    with stage(progress, "opened") as notify:
        importing = ImportOptions(trust_pickle=request.trust_pickle)
        fixed = {**(loaded.shapes() if loaded else {}), **(request.shapes or {})}
        opened = as_source(request.model)
        source, _ = open_source_model(opened, fixed, importing)
        canonical = source.clone()
        run_passes(canonical)
        canonical = with_float_weights(canonical)
        notify(f"{source_name(opened)}  {multiplications(canonical) / 1e6:,.0f} M multiplications")
    sizes = model_bytes(canonical)
    # A pass of second moments holds every value that a layer reads.
    claim(
        memory_need(model_bytes(source), sizes, CALIBRATION_SAMPLES, len(timed)) + sizes.values,
        seconds_need(canonical, sizes, CALIBRATION_SAMPLES, len(timed)),
    )
    with stage(progress, "reference") as notify:
        inputs, outputs = signature(source)
        if loaded:
            loaded.check(inputs, outputs)
        samples = load_samples(request.samples, inputs, loaded, CALIBRATION_SAMPLES)
        parts = split(samples.arrays)
        if parts.shared:
            raise SampleError(
                f"{samples.origin}: at least four different samples are needed; 64 to 128 are better"
            )
        validation, test = (source_evaluator(source, loaded, part) for part in (parts.validation, parts.test))
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
        groups=_changes(plan, removed),
    )


def _reach(
    plan: PruningPlan, goal: ShrinkGoal, timer: ModelTimer, report: Callable[[str], None]
) -> tuple[ir.Model, dict[str, int]]:
    """Prune to the model that reaches the goal, and return it with the number of units that each group lost.

    Raises:
        UsageError: no model does.
    """
    if goal.kind != "latency":
        total = multiplications(plan.model) if goal.kind == "multiplications" else weight_bytes(plan.model)
        removed = allocate(plan, goal.kind, goal.share, total)
        if removed is None:
            raise _unreachable(plan, goal, "all groups together are smaller than that")
        return pruned_model(plan, removed), removed
    if goal.target not in timer.targets:
        raise UsageError(f"{goal.target} cannot be timed: {timer.not_timed.get(goal.target, 'no engine')}")
    total, low, high = multiplications(plan.model), 0.0, 1.0
    best: tuple[ir.Model, dict[str, int]] | None = None
    for _ in range(LATENCY_STEPS):
        share = (low + high) / 2
        removed = allocate(plan, "multiplications", share, total)
        if removed is None:
            high = share
            continue
        model = pruned_model(plan, removed)
        ratio = timer.ratios(model, goal.target)[goal.target]
        report(f"{100 * share:.0f} % fewer multiplications: {ratio:.2f}x on {goal.target}")
        if ratio <= 1 - goal.share:
            best, high = (model, removed), share
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


def _changes(plan: PruningPlan, removed: Mapping[str, int]) -> tuple[GroupChange, ...]:
    changes = []
    for group in plan.groups:
        units, channels = removed.get(group.name, 0), group.group.channels
        if units:
            before = len(group.group.units) * channels
            changes.append(GroupChange(group.name, before, before - units * channels, group.error(units)))
    return tuple(changes)


def _loaded_card(card: Card | str | Path | None) -> Card | None:
    if not isinstance(card, str | Path):
        return card
    from edgekit.processing.card import load_card

    return load_card(card)


class ModelTimer:
    """Compiles and times models against one model, in float32 on one thread.

    Args:
        model: The canonical model.
        samples: Some that models are verified with; the first one is timed.
        targets: Targets to time on.

    Attributes:
        not_timed: Target -> why it is left out.
    """

    def __init__(self, model: ir.Model, samples: Sequence[Sample], targets: Sequence[BuildTarget]) -> None:
        self._samples = samples
        self._parents: list[VariantBuild] = []
        self.not_timed: dict[str, str] = {}
        reference = self._reference(model)
        for target in targets:
            try:
                refuse_unsupported("it", model, check_canonical(model, [target]))
                parent = _built(model, target, reference)
            except UnsupportedError:
                self.not_timed[target.profile.name] = "it has nodes that this target does not support"
                continue
            if parent.timed:
                self._parents.append(parent)
            else:
                self.not_timed[target.profile.name] = parent.status

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of those that are timed."""
        return tuple(parent.profile.name for parent in self._parents)

    def ratios(self, model: ir.Model, only: str = "") -> dict[str, float]:
        """Return target -> ratio of another model's time to this model's; ``only``: on this target alone."""
        ratio_by_target = {}
        reference = self._reference(model)
        for parent in self._parents:
            name = parent.profile.name
            if only not in ("", name):
                continue
            variant = _built(model, parent.target, reference)
            if variant.timed:
                ratio_by_target[name] = ratio_to_parent(variant.to_time, parent.to_time, reference)
            else:
                self.not_timed[name] = variant.status
        return ratio_by_target

    def _reference(self, model: ir.Model) -> ReferenceOutputs:
        return run_reference(model, *signature(model), self._samples)


def _built(model: ir.Model, target: BuildTarget, reference: ReferenceOutputs) -> VariantBuild:
    variant = VariantBuild(target, FULL_PRECISION)
    compile_and_judge(variant, compile_float, model, reference)
    return variant


def targets_to_time(names: Sequence[str]) -> list[BuildTarget]:
    """Return the targets with these names, or all whose engine is installed.

    Raises:
        ProfileError: a target does not exist.
        MissingDependency: the engine of one that is named is not installed.
    """
    if not names:
        every = [resolve(find_profile(name)) for name, target in profile_names().items() if name == target]
        return [target for target in every if _objection(target) is None and runs_here(target.profile)]
    targets = [resolve(find_profile(name)) for name in dict.fromkeys(names)]
    for target in targets:
        missing = _objection(target)
        if missing is not None:
            raise missing
    return targets


def _objection(target: BuildTarget) -> MissingDependency | None:
    """Return why its engine cannot be timed here: a reference executor's times do not count."""
    try:
        target.engine.engine_version()
    except MissingDependency as missing:
        return missing
    return None
