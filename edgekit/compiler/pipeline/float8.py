"""fp8 (E4M3) for targets whose chip multiplies it: calibrated like int8, and tested on held-out samples."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from edgekit.bundle.evidence import Evidence
from edgekit.compiler.pipeline.build_job import BuildJob
from edgekit.compiler.pipeline.build_options import BuildOptions
from edgekit.compiler.pipeline.held_out import evaluate_held_out
from edgekit.compiler.pipeline.quantization_data import QuantizationData
from edgekit.compiler.pipeline.try_variant import Compiled, try_variant
from edgekit.compiler.pipeline.variant_build import VariantBuild
from edgekit.compiler.quantize.placement.float8_pairs import with_float8_pairs
from edgekit.errors import UsageError
from edgekit.target.build_target import BuildTarget


def refuse_without_float8(options: BuildOptions, targets: Sequence[BuildTarget], has_samples: bool) -> None:
    """Refuse fp8 where it can't be built.

    Raises:
        UsageError: a target or its chip has no fp8, or there are no samples to calibrate it on.
    """
    if not options.makes("quantized"):
        return
    precision, without = options.precision, []
    for target in targets:
        fast = target.profile.facts.get("precisions")
        if precision not in target.info.precisions or fast is None or precision not in fast.value:
            without.append(target.profile.name)
    if without:
        raise UsageError(f"{', '.join(without)} does not support {precision}; use fp32, fp16, int8 or auto")
    if not has_samples:
        raise UsageError(
            f"{precision} needs calibration samples: add --samples with 64 to 128 typical inputs"
        )


def add_float8(job: BuildJob, variants: Sequence[VariantBuild], data: QuantizationData) -> list[VariantBuild]:
    """Return the variants, with the fp8 one of each float parent before it: nothing times either here."""
    extended: list[VariantBuild] = []
    for parent in variants:
        if parent.artifact.files:  # else the target met a fault, which the report names
            variant = VariantBuild(parent.target, job.options.precision, parent, job.options.force)
            extended.append(try_variant(variant, job.faults, _compile, job, data))
        extended.append(parent)
    return extended


def _compile(variant: VariantBuild, job: BuildJob, data: QuantizationData) -> Compiled:
    target, context = variant.target, data.search_context
    model, plan = with_float8_pairs(context.model, variant.rules, context.observations)
    evidence: Evidence = {
        **data.equalized(),
        "quantization": {
            "scheme": "fp8 (E4M3) weights and activations",
            "placement": "all",
            "integer_nodes": len(plan.nodes),
            "float": {"count": 0, "names": []},
            "samples": dict(data.counts),
        },
    }
    judge = partial(evaluate_held_out, model=model, held_out=data.held_out, options=job.options)
    return Compiled(target.compiler.compile_model(model, target.profile, variant.precision), judge, evidence)
