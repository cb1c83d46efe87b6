"""Weight-only quantization, for targets that support a form of it: built and tested like int8.

int8-weights         int8 weights, float arithmetic: a quarter of the file size, no faster
palette6, palette4   palettized weights, indices into a table of 64 or 16 floats: smaller still
int8-dynamic         integer arithmetic, activations quantized at run time: faster for large matrix products
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import onnx_ir as ir

from edgekit.bundle.evidence import Evidence
from edgekit.bundle.variant import Status
from edgekit.compiler.evaluate.fidelity import Evaluator
from edgekit.compiler.evaluate.output_channels import find_channels
from edgekit.compiler.evaluate.relative_time import FASTER, ratio_to_parent
from edgekit.compiler.evaluate.samples import Sample
from edgekit.compiler.evaluate.verify import ReferenceOutputs
from edgekit.compiler.lowering.fp16_weights import FP16_MIN_ELEMENTS
from edgekit.compiler.pipeline.build_options import BuildOptions
from edgekit.compiler.pipeline.faults import Fault, Faults
from edgekit.compiler.pipeline.held_out import HeldOut, evaluate_held_out
from edgekit.compiler.pipeline.quantization_data import QuantizationData
from edgekit.compiler.pipeline.variant_build import VariantBuild, lost_variant, runs_here
from edgekit.compiler.quantize.placement.float_weights import with_float_weights
from edgekit.compiler.quantize.weights.value_digests import WeightCache
from edgekit.compiler.quantize.weights.weight_only import with_stored_weights
from edgekit.errors import EdgeKitError, UsageError, reason_of
from edgekit.system.formats.plain_text import size
from edgekit.system.timings import files_digest
from edgekit.target.build_target import BuildTarget
from edgekit.target.contract import Artifact
from edgekit.target.precisions import AUTO, precision_of, requested
from edgekit.target.quant_rules import Rules, WeightForm

Forms = Mapping[str, tuple[Rules, Sequence[WeightForm]]]
"""Profile name -> its rules, and the forms to build."""


@dataclass(frozen=True, eq=False)
class WeightOnlyContext:
    """Common data to compile and test the weight-only variants of all targets.

    Attributes:
        model: The canonical graph with float weights.
        calibration: Samples to fit the rounding of weights on; if empty, weights are rounded to nearest.
        held_out: The test samples, which nothing is fitted on.
        weight_cache: Quantized weights, shared between targets.
    """

    model: ir.Model
    calibration: Sequence[Sample]
    held_out: HeldOut
    weight_cache: WeightCache


def find_weight_forms(options: BuildOptions, targets: Sequence[BuildTarget]) -> Forms:
    """Return the weight-only forms to build for each profile.

    Raises:
        UsageError: a form was requested by name that a target does not have.
    """
    forms_by_profile: dict[str, tuple[Rules, Sequence[WeightForm]]] = {}
    names = [row.name for row in requested(options.precision) if row.stage == "weights"]
    for target in targets if names else ():
        if target.rules is not None:
            forms = [form for form in target.rules.weight_forms if form.name in names]
            forms_by_profile.update({target.profile.name: (target.rules, forms)} if forms else {})
    without = [target.profile.name for target in targets if target.profile.name not in forms_by_profile]
    if names and without and options.precision != AUTO:
        raise UsageError(
            f"{', '.join(without)} does not support {options.precision}; use fp32, fp16, int8 or auto"
        )
    return forms_by_profile


def weight_only_context(
    canonical: ir.Model, reference: ReferenceOutputs, data: QuantizationData | None
) -> WeightOnlyContext:
    """Return the context of weight-only variants. Without quantization data they are tested on the samples
    that every variant is verified with."""
    if data is None:
        evaluator = Evaluator(None, reference.expected, channels=find_channels(canonical.graph))
        held_out = HeldOut(reference, evaluator, None)
        return WeightOnlyContext(with_float_weights(canonical), (), held_out, WeightCache())
    search = data.search_context
    return WeightOnlyContext(search.model, search.calibration, data.held_out, search.weight_cache)


def add_weight_only(
    variants: Sequence[VariantBuild],
    context: WeightOnlyContext,
    forms: Forms,
    options: BuildOptions,
    faults: Faults,
    notify: Callable[[str], None],
) -> list[VariantBuild]:
    """Return the variants, with the weight-only ones of each profile after its other ones."""
    by_profile: dict[str, list[VariantBuild]] = {}
    for variant in variants:
        by_profile.setdefault(variant.profile.name, []).append(variant)
    for name, (rules, group) in forms.items():
        parent = next((v for v in by_profile[name] if v.artifact.files), None)
        if parent is None:  # the target met a fault, which the report tells
            continue
        built = []
        for form in group:
            notify(f"{name}-{form.name}")
            built.append(_contained(context, rules, form, parent, options, faults))
        added = list({(v.name, v.digest): v for v in built if v is not None}.values())
        if not added and options.precision != AUTO:
            ops = " or ".join(dict.fromkeys(op for form in group for op in form.ops))
            reason = f"no {ops} has {FP16_MIN_ELEMENTS:,} weights or more"
            added = [_rejected_form(parent, options.precision, reason)]
        # Without times a runtime loads the first variant, so the precision requested by name goes first.
        first = options.precision != AUTO and any(v.outcome is Status.NOT_RUN for v in added)
        by_profile[name] = [*added, *by_profile[name]] if first else [*by_profile[name], *added]
    return [variant for group in by_profile.values() for variant in group]


def select_variants(variants: Sequence[VariantBuild], options: BuildOptions) -> list[VariantBuild]:
    """Select weight-only variants once all are timed: the fastest of each form, if it has a gain.

    ``int8-dynamic`` must be faster than float. So must ``int8-weights``, unless it was requested by name:
    then its purpose is the file size, and it is shipped without its parent. With ``auto``, a form is rejected
    if an int8 variant is faster and no less accurate.
    """
    groups: dict[str, list[VariantBuild]] = {}
    for variant in variants:
        groups.setdefault(variant.name, []).append(variant)
    left = [_fastest(group) for group in groups.values()]
    for_size = [t for t in left if precision_of(t.precision).for_size]
    for variant in [t for t in for_size if t.parent is not None and t.artifact.files]:
        sizes = [t.evidence["size_bytes"] for t in (variant, variant.parent) if t is not None]
        if sizes[0] >= sizes[1]:  # the source stores its weights so already, or few of them are large
            variant.reject(f"it saves no space: {size(sizes[0])}, while fp32 has {size(sizes[1])}")
    for variant in [t for t in left if "stored_weights" in t.evidence and t.timed]:
        parent, ratio = variant.parent, _ratio(variant)
        faster_int8 = (t for t in left if t.profile == variant.profile and _is_better(t, variant))
        if parent is None or not parent.timed:
            continue
        if ratio > FASTER and runs_here(variant.profile) and not options.for_size:
            variant.reject(_no_gain(variant, parent, ratio))
        elif options.precision == AUTO and (faster := next(faster_int8, None)):
            variant.reject(f"{faster.name} is faster and as accurate")
    if options.for_size:
        has = {t.profile.name for t in left if t.precision == options.precision and not t.rejected}
        left = [t for t in left if t.profile.name not in has or t.precision == options.precision]
    return left


def _fastest(group: Sequence[VariantBuild]) -> VariantBuild:
    """Return the fastest accepted variant of one name; its evidence records the times of the others."""
    best = min(group, key=lambda t: (t.rejected, _ratio(t)))
    if len(group) > 1:
        best.evidence["stored_weights"]["lost"] = [
            {"ops": t.evidence["stored_weights"]["ops"], "lost": f"{_ratio(t):.2f}x the time of fp32"}
            for t in group
            if t is not best
        ]
    return best


def _no_gain(variant: VariantBuild, parent: VariantBuild, ratio: float) -> str:
    words = f"{ratio:.2f}x the time of {parent.name}"
    if not precision_of(variant.precision).for_size:
        return words
    sizes = [size(t.evidence["size_bytes"]) for t in (variant, parent)]
    return (
        f"{words}; to save space ({sizes[0]} instead of {sizes[1]}), build it with --precision "
        f"{variant.precision}"
    )


def _ratio(variant: VariantBuild) -> float:
    """Return the latency relative to the parent; 1 if they were not timed."""
    stored, timing = variant.evidence.get("stored_weights", {}), variant.evidence.get("timing")
    if "ratio" in stored:
        return float(stored["ratio"])
    if timing is None or variant.parent is None or "timing" not in variant.parent.evidence:
        return 1.0
    return float(timing.get("ratio", timing["min_ms"] / variant.parent.evidence["timing"]["min_ms"]))


def _is_better(int8: VariantBuild, form: VariantBuild) -> bool:
    """Return whether an int8 variant is kept, faster than the form, and no less accurate in the test."""
    if int8.rejected or not int8.timed or "quantization" not in int8.evidence:
        return False
    one, other = (t.evidence["agreement"]["value"] for t in (int8, form))
    return _ratio(int8) < _ratio(form) and other is not None and (one is None or one >= other)


def _contained(
    context: WeightOnlyContext,
    rules: Rules,
    form: WeightForm,
    parent: VariantBuild,
    options: BuildOptions,
    faults: Faults,
) -> VariantBuild | None:
    """Build one form; return a lost variant if it meets a fault."""
    name = f"{parent.profile.name}-{form.name}"
    build = partial(_build_form, context, rules, form, parent, options)
    built = faults.contain(parent.profile.name, name, build)
    return lost_variant(name, parent.target, form.name, parent, built) if isinstance(built, Fault) else built


def _build_form(
    context: WeightOnlyContext, rules: Rules, form: WeightForm, parent: VariantBuild, options: BuildOptions
) -> VariantBuild | None:
    """Build one form for one profile.

    Returns:
        The variant, tested on the held-out samples or rejected; None if the form stores no weights, or
        if it has to be timed and can't be.
    """
    by_time = options.precision == AUTO
    for_speed = not options.for_size and not options.force
    if context.calibration and for_speed and parent.timed and runs_here(parent.profile):
        slow = _reject_slow_form(context, rules, form, parent, options)
        if slow is not None:
            return slow
    compiled = _compile_form(context, rules, form, parent, options)
    if compiled is None or compiled[1].rejected:
        return compiled and compiled[1]
    model, variant = compiled
    if by_time and parent.target.missing() is not None:
        return None  # it is selected by its time, which can't be measured here
    ran = evaluate_held_out(variant, model, context.held_out, options)
    if by_time and ran is not None and ran.absent:
        return None  # as above: the times of a reference executor are not the engine's
    return variant


def _reject_slow_form(
    context: WeightOnlyContext, rules: Rules, form: WeightForm, parent: VariantBuild, options: BuildOptions
) -> VariantBuild | None:
    """Time the form with weights rounded to nearest: they run as fast as fitted ones and need no fitting.

    Returns:
        The rejected variant if it is not faster than its parent; None if it is faster or does not run: then
        the fitted one decides.
    """
    compiled = _compile_form(replace(context, calibration=()), rules, form, parent, options)
    if compiled is None or compiled[1].rejected:
        return None
    variant = compiled[1]
    try:
        ratio = ratio_to_parent(variant.to_time, parent.to_time, context.held_out.reference)
    except EdgeKitError:
        return None
    if ratio <= FASTER:
        return None
    variant.evidence["stored_weights"]["ratio"] = ratio
    variant.reject(_no_gain(variant, parent, ratio))
    return variant


def _compile_form(
    context: WeightOnlyContext, rules: Rules, form: WeightForm, parent: VariantBuild, options: BuildOptions
) -> tuple[ir.Model, VariantBuild] | None:
    """Return a form's graph and variant, rejected if it does not compile; None if it stores no weights."""
    target = parent.target
    try:
        model, names = with_stored_weights(
            context.model, rules, form, context.calibration, context.weight_cache
        )
        if not names:
            return None
        artifact = target.compiler.compile_model(model, target.profile, form.name)
    except EdgeKitError as problem:
        return context.model, _rejected_form(parent, form.name, reason_of(problem, for_bundles=True))
    evidence: Evidence = {
        "size_bytes": artifact.size_bytes,
        "compile": dict(artifact.facts),
        "stored_weights": {
            "ops": list(form.ops),
            "nodes": len(names),
            "rounding": "k-means"
            if precision_of(form.name).from_table
            else "fitted"
            if context.calibration
            else "nearest",
        },
    }
    name, digest = f"{target.profile.name}-{form.name}", files_digest(artifact.files)
    return model, VariantBuild(
        name, target, form.name, artifact, digest, evidence, parent, forced=options.force
    )


def _rejected_form(parent: VariantBuild, form: str, reason: str) -> VariantBuild:
    """Return a rejected variant without an artifact."""
    name, none = f"{parent.profile.name}-{form}", Artifact({})
    digest = files_digest(none.files)
    return VariantBuild(
        name, parent.target, form, none, digest, {"size_bytes": 0}, parent, Status.REJECTED, reason
    )
