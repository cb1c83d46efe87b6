"""Weight-only quantization, for targets that support a form of it: built and tested like int8.

int8-weights         int8 weights, float arithmetic: a quarter of the file size, no faster
palette6, palette4   palettized weights, indices into a table of 64 or 16 floats: smaller still
int8-dynamic         integer arithmetic, activations quantized at run time: faster for large matrix products
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import onnx_ir as ir

from edgekit.bundle.evidence import Evidence
from edgekit.bundle.variant import Status
from edgekit.compiler.evaluate.relative_time import FASTER, ratio_to_parent
from edgekit.compiler.evaluate.samples import Sample
from edgekit.compiler.lowering.fp16_weights import FP16_MIN_ELEMENTS
from edgekit.compiler.pipeline.build_job import BuildJob
from edgekit.compiler.pipeline.build_options import BuildOptions
from edgekit.compiler.pipeline.faults import Faults
from edgekit.compiler.pipeline.forecast import NEAREST, part
from edgekit.compiler.pipeline.held_out import HeldOut, evaluate_held_out
from edgekit.compiler.pipeline.quantization_data import QuantizationData
from edgekit.compiler.pipeline.select_variants import no_gain_reason
from edgekit.compiler.pipeline.try_variant import Compiled, try_variant
from edgekit.compiler.pipeline.variant_build import VariantBuild, by_profile, parent_of, runs_here
from edgekit.compiler.quantize.weights.weight_only import with_stored_weights
from edgekit.errors import EdgeKitError, UsageError
from edgekit.system.progress import Notify
from edgekit.target.build_target import BuildTarget
from edgekit.target.precisions import AUTO, precision_of, requested
from edgekit.target.quant_rules import WeightForm


def find_weight_forms(
    options: BuildOptions, targets: Sequence[BuildTarget]
) -> dict[str, Sequence[WeightForm]]:
    """Return the weight-only forms to build for each profile that has some.

    Raises:
        UsageError: a form was requested by name that a target does not have.
    """
    names = [row.name for row in requested(options.precision) if row.stage == "weights"]
    available = {t.profile.name: t.rules.weight_forms if t.rules is not None else () for t in targets}
    forms = {profile: [f for f in rows if f.name in names] for profile, rows in available.items()}
    without = [profile for profile, rows in forms.items() if not rows]
    if names and without and options.precision != AUTO:
        raise UsageError(
            f"{', '.join(without)} does not support {options.precision}; use fp32, fp16, int8 or auto"
        )
    return {profile: rows for profile, rows in forms.items() if rows}


def add_weight_only(
    job: BuildJob, variants: Sequence[VariantBuild], data: QuantizationData, notify: Notify
) -> list[VariantBuild]:
    """Return the variants, with the weight-only ones of each profile after its other ones."""
    groups, options = by_profile(variants), job.options
    for name, forms in job.weight_forms.items():
        parent = parent_of(groups[name])
        if parent is None:  # the target met a fault, which the report names
            continue
        tried = []
        for form in forms:
            notify(f"{name}-{form.name}", part=part("weights", NEAREST, name + form.name))
            tried.append(_try_form(form, parent, data, options, job.faults))
        added = list({(v.name, v.digest): v for v in tried if _has_result(v, options)}.values())
        if not added and options.precision != AUTO:
            ops = " or ".join(dict.fromkeys(op for form in forms for op in form.ops))
            added = [VariantBuild(parent.target, options.precision, parent)]
            added[0].reject(f"no {ops} has {FP16_MIN_ELEMENTS:,} weights or more")
        # Without times a runtime loads the first variant, so the precision requested by name goes first.
        first = options.precision != AUTO and any(v.outcome is Status.NOT_RUN for v in added)
        groups[name] = [*added, *groups[name]] if first else [*groups[name], *added]
    return [variant for group in groups.values() for variant in group]


def _try_form(
    form: WeightForm, parent: VariantBuild, data: QuantizationData, options: BuildOptions, faults: Faults
) -> VariantBuild:
    """Try one form. If its time selects it, it is first timed with weights rounded to nearest, which run as
    fast as fitted ones and need no fitting."""
    for_speed = not options.for_size and not options.force
    calibration = data.search_context.calibration
    if calibration and for_speed and parent.timed and runs_here(parent.profile):
        quick = VariantBuild(parent.target, form.name, parent)
        try_variant(quick, faults, _compile_form, form, data, (), _reject_slow)
        if quick.rejected and quick.artifact.files:
            return quick
    variant = VariantBuild(parent.target, form.name, parent, options.force)
    test = partial(_test, options=options)
    return try_variant(variant, faults, _compile_form, form, data, calibration, test)


def _compile_form(
    variant: VariantBuild,
    form: WeightForm,
    data: QuantizationData,
    calibration: Sequence[Sample],
    judge: Callable[[VariantBuild, ir.Model, HeldOut], object],
) -> Compiled | None:
    """Compile a form, or return None if it stores no weights. Without calibration they are rounded to
    nearest."""
    target, context = variant.target, data.search_context
    model, names = with_stored_weights(context.model, variant.rules, form, calibration, context.weight_cache)
    if not names:
        return None
    rounding = "k-means" if precision_of(form.name).from_table else "fitted" if calibration else "nearest"
    evidence: Evidence = {
        **data.equalized(),
        "stored_weights": {"ops": list(form.ops), "nodes": len(names), "rounding": rounding},
    }
    artifact = target.compiler.compile_model(model, target.profile, form.name)
    return Compiled(artifact, lambda variant: judge(variant, model, data.held_out), evidence)


def _reject_slow(variant: VariantBuild, model: ir.Model, held_out: HeldOut) -> None:
    """Reject a form that is not faster than its parent. If it does not run, the fitted one decides."""
    parent = variant.parent
    assert parent is not None
    try:
        ratio = ratio_to_parent(variant.to_time, parent.to_time, held_out.reference)
    except EdgeKitError:
        return
    if ratio > FASTER:
        variant.evidence["stored_weights"]["ratio"] = ratio
        variant.reject(no_gain_reason(variant, parent, ratio))


def _test(variant: VariantBuild, model: ir.Model, held_out: HeldOut, options: BuildOptions) -> None:
    if options.precision != AUTO or variant.target.missing() is None:
        evaluate_held_out(variant, model, held_out, options)


def _has_result(variant: VariantBuild, options: BuildOptions) -> bool:
    """Return whether a form stores weights and, with ``auto``, which selects it by its time, ran on its own
    engine."""
    if options.precision == AUTO and "stands_in_for" in variant.evidence.get("executed", {}):
        return False
    stored = bool(variant.artifact.files) and (options.precision != AUTO or variant.ran)
    return variant.rejected or stored
