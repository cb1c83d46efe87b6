"""Weights alone stored in int8, where a target has a form for it: made, proved and judged like int8.

int8-weights   computes with floats: a file of a quarter of the size, and no faster
palette6, palette4   numbers of a table of 64 or 16 floats: smaller still
int8-dynamic   multiplies integers, rounding what comes in as it comes: faster where products are large
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from edgekit.bundle.evidence import Evidence
from edgekit.bundle.variant import Status
from edgekit.errors import EdgeKitError, UsageError, reason_of
from edgekit.evaluate import verify
from edgekit.evaluate.fidelity import Evaluator
from edgekit.evaluate.relative_time import FASTER, ratio_to_parent
from edgekit.evaluate.samples import Sample
from edgekit.evaluate.verify import ReferenceOutputs
from edgekit.formats.plain_text import size
from edgekit.lowering.fp16_weights import FP16_MIN_ELEMENTS
from edgekit.pipeline.build_options import FOR_SIZE, WEIGHT_FORMS, BuildOptions, Goal
from edgekit.pipeline.held_out import HeldOut, evaluate_held_out
from edgekit.pipeline.quantization_data import QuantizationData
from edgekit.pipeline.variant_build import VariantBuild, runs_here
from edgekit.quantize.placement.float_weights import with_float_weights
from edgekit.quantize.weights.value_digests import WeightCache
from edgekit.quantize.weights.weight_only import with_stored_weights
from edgekit.system.timings import files_digest
from edgekit.target.build_target import BuildTarget
from edgekit.target.contract import Artifact
from edgekit.target.quant_rules import PALETTES, Rules, WeightForm

if TYPE_CHECKING:
    import onnx_ir as ir

Forms = Mapping[str, tuple[Rules, Sequence[WeightForm]]]
"""Profile name -> its rules, and the forms to try."""

ON_NOISE = Goal(snr_db=verify.SNR_LIMITS_DB["int8"])
"""What must be reached where nobody says, and random numbers are all there is to judge by."""


@dataclass(frozen=True, eq=False)
class WeightOnlyContext:
    """What the forms of every target are made from and judged by.

    Attributes:
        model: The canonical graph with float weights.
        calibration: Samples that weights are fitted on; none: they are rounded to nearest.
        held_out: What they are judged on: nothing was fitted on these samples.
        weight_cache: What the weights of one target share with those of the next.
    """

    model: ir.Model
    calibration: Sequence[Sample]
    held_out: HeldOut
    weight_cache: WeightCache


def find_weight_forms(asked: BuildOptions, targets: Sequence[BuildTarget]) -> Forms:
    """What to try for each profile.

    Raises:
        UsageError: a form is asked for by name that a target does not have.
    """
    found: dict[str, tuple[Rules, Sequence[WeightForm]]] = {}
    names = WEIGHT_FORMS.get(asked.precision, ())
    for target in targets if names else ():
        if target.rules is not None:
            forms = [form for form in target.rules.weight_forms if form.name in names]
            found.update({target.profile.name: (target.rules, forms)} if forms else {})
    without = [target.profile.name for target in targets if target.profile.name not in found]
    if names and without and asked.precision != "auto":
        raise UsageError(f"{', '.join(without)} has no {asked.precision}; use fp32, fp16, int8 or auto")
    return found


def weight_only_context(
    canonical: ir.Model, reference: ReferenceOutputs, data: QuantizationData | None
) -> WeightOnlyContext:
    """What forms are made from: the data of int8, or where there are no samples what every variant is
    verified with."""
    if data is None:
        held_out = HeldOut(reference, Evaluator(None, reference.expected), None)
        return WeightOnlyContext(with_float_weights(canonical), (), held_out, WeightCache())
    search = data.bench
    return WeightOnlyContext(search.model, search.calibration, data.held_out, search.weight_cache)


def add_weight_only(
    trials: Sequence[VariantBuild], on: WeightOnlyContext, forms: Forms, asked: BuildOptions
) -> list[VariantBuild]:
    """The trials with the forms of each profile behind those that it has so far."""
    found: dict[str, list[VariantBuild]] = {}
    for trial in trials:
        found.setdefault(trial.profile.name, []).append(trial)
    if not on.calibration and asked.goal == Goal():
        asked = replace(asked, goal=ON_NOISE)
    for name, (rules, own) in forms.items():
        parent = found[name][0]
        tries = (_try_form(on, rules, form, parent, asked) for form in own)
        made = list({(t.name, t.digest): t for t in tries if t is not None}.values())
        if not made and asked.precision != "auto":
            ops = " or ".join(dict.fromkeys(op for form in own for op in form.ops))
            why = f"no {ops} has {FP16_MIN_ELEMENTS:,} weights or more"
            made = [_not_made(parent, asked.precision, why)]
        # Where nobody can time, a runtime takes the first that is there: what was asked for by name.
        first = asked.precision != "auto" and any(t.outcome is Status.NOT_RUN for t in made)
        found[name] = [*made, *found[name]] if first else [*found[name], *made]
    return [trial for own in found.values() for trial in own]


def select_variants(trials: Sequence[VariantBuild], asked: BuildOptions) -> list[VariantBuild]:
    """What is left once all is timed: of each form the fastest, and nothing that brings nothing.

    ``int8-dynamic`` must be faster than float; so must ``int8-weights``, unless it is asked for by name: then
    the size of the file is what it is for, and it is shipped without its parent. What int8 does faster and
    no worse goes.
    """
    groups: dict[str, list[VariantBuild]] = {}
    for trial in trials:
        groups.setdefault(trial.name, []).append(trial)
    left = [_fastest(group) for group in groups.values()]
    for trial in [t for t in left if t.precision in FOR_SIZE and t.parent is not None and t.artifact.files]:
        sizes = [t.evidence["size_bytes"] for t in (trial, trial.parent) if t is not None]
        if sizes[0] >= sizes[1]:  # the source's weights are stored so already, or few of them are large
            trial.reject(f"it saves nothing: {size(sizes[0])}, and fp32 {size(sizes[1])}")
    for trial in [t for t in left if "stored_weights" in t.evidence and t.timed]:
        parent, ratio = trial.parent, _ratio(trial)
        faster_int8 = (t for t in left if t.profile == trial.profile and _is_over(t, trial))
        if parent is None or not parent.timed:
            continue
        if ratio > FASTER and runs_here(trial.profile) and asked.precision not in FOR_SIZE:
            trial.reject(_no_gain(trial, parent, ratio))
        elif asked.precision == "auto" and (over := next(faster_int8, None)):
            trial.reject(f"{over.name} is faster and no worse")
    if asked.precision in FOR_SIZE:
        has = {t.profile.name for t in left if t.precision == asked.precision and not t.rejected}
        left = [t for t in left if t.profile.name not in has or t.precision == asked.precision]
    return left


def _fastest(group: Sequence[VariantBuild]) -> VariantBuild:
    """Of variants of one name the fastest that is good enough; its evidence says what the others took."""
    best = min(group, key=lambda t: (t.rejected, _ratio(t)))
    if len(group) > 1:
        best.evidence["stored_weights"]["lost"] = [
            {"ops": t.evidence["stored_weights"]["ops"], "lost": f"{_ratio(t):.2f}x the time of fp32"}
            for t in group
            if t is not best
        ]
    return best


def _no_gain(trial: VariantBuild, parent: VariantBuild, ratio: float) -> str:
    words = f"{ratio:.2f}x the time of {parent.name}"
    if trial.precision not in FOR_SIZE:
        return words
    sizes = [size(t.evidence["size_bytes"]) for t in (trial, parent)]
    return (
        f"{words}; it is {sizes[0]} instead of {sizes[1]}, for which --precision {trial.precision} ships it"
    )


def _ratio(trial: VariantBuild) -> float:
    """Time over the parent's; 1 where they were not timed."""
    stored, timing = trial.evidence.get("stored_weights", {}), trial.evidence.get("timing")
    if "ratio" in stored:
        return float(stored["ratio"])
    if timing is None or trial.parent is None or "timing" not in trial.parent.evidence:
        return 1.0
    return float(timing.get("ratio", timing["min_ms"] / trial.parent.evidence["timing"]["min_ms"]))


def _is_over(int8: VariantBuild, form: VariantBuild) -> bool:
    """Whether this is int8 that is kept, faster than the form, and agrees no less on the same samples."""
    if int8.rejected or not int8.timed or "quantization" not in int8.evidence:
        return False
    one, other = (t.evidence["agreement"]["value"] for t in (int8, form))
    return _ratio(int8) < _ratio(form) and other is not None and (one is None or one >= other)


def _try_form(
    on: WeightOnlyContext, rules: Rules, form: WeightForm, parent: VariantBuild, asked: BuildOptions
) -> VariantBuild | None:
    """One form of one profile; None where it stores nothing."""
    by_time = asked.precision == "auto"
    for_speed = asked.precision not in FOR_SIZE and not asked.force
    if on.calibration and for_speed and parent.timed and runs_here(parent.profile):
        slow = _no_faster(on, rules, form, parent, asked)
        if slow is not None:
            return slow
    made = _made(on, rules, form, parent, asked)
    if made is None or made[1].rejected:
        return made and made[1]
    model, variant = made
    if by_time and parent.target.missing() is not None:
        return None  # nothing can be said of its time, which is what it is for
    ran = evaluate_held_out(variant, model, on.held_out, asked)
    if by_time and ran is not None and ran.absent:
        return None  # as above: what stands in for the engine has no time
    return variant


def _no_faster(
    on: WeightOnlyContext, rules: Rules, form: WeightForm, parent: VariantBuild, asked: BuildOptions
) -> VariantBuild | None:
    """What is rejected for its time with weights that are rounded to nearest, which takes as long to run and
    none to fit; None where it is faster, or does not run: then the fitted one has the word."""
    made = _made(replace(on, calibration=()), rules, form, parent, asked)
    if made is None or made[1].rejected:
        return None
    variant = made[1]
    try:
        ratio = ratio_to_parent(variant.to_time, parent.to_time, on.held_out.reference)
    except EdgeKitError:
        return None
    if ratio <= FASTER:
        return None
    variant.evidence["stored_weights"]["ratio"] = ratio
    variant.reject(_no_gain(variant, parent, ratio))
    return variant


def _made(
    on: WeightOnlyContext, rules: Rules, form: WeightForm, parent: VariantBuild, asked: BuildOptions
) -> tuple[ir.Model, VariantBuild] | None:
    """The graph of a form and its variant, which is rejected where it can't be made; None where it stores
    nothing."""
    target = parent.target
    try:
        model, names = with_stored_weights(on.model, rules, form, on.calibration, on.weight_cache)
        if not names:
            return None
        artifact = target.compiler.compile_model(model, target.profile, form.name)
    except EdgeKitError as problem:
        return on.model, _not_made(parent, form.name, reason_of(problem))
    evidence: Evidence = {
        "size_bytes": sum(map(len, artifact.files.values())),
        "compile": dict(artifact.facts),
        "stored_weights": {
            "ops": list(form.ops),
            "nodes": len(names),
            "rounding": "k-means" if form.name in PALETTES else "fitted" if on.calibration else "nearest",
        },
    }
    name, digest = f"{target.profile.name}-{form.name}", files_digest(artifact.files)
    return model, VariantBuild(
        name, target, form.name, artifact, digest, evidence, parent, forced=asked.force
    )


def _not_made(parent: VariantBuild, form: str, why: str) -> VariantBuild:
    """The variant of a form that there is no artifact of."""
    name, none = f"{parent.profile.name}-{form}", Artifact({})
    digest = files_digest(none.files)
    return VariantBuild(
        name, parent.target, form, none, digest, {"size_bytes": 0}, parent, Status.REJECTED, why
    )
