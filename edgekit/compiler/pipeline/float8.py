"""fp8 (E4M3) for targets whose chip multiplies it: calibrated like int8, and tested on held-out samples."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from edgekit.bundle.evidence import Evidence
from edgekit.compiler.pipeline.build_options import BuildOptions
from edgekit.compiler.pipeline.faults import Fault, Faults
from edgekit.compiler.pipeline.held_out import evaluate_held_out
from edgekit.compiler.pipeline.quantization_data import QuantizationData
from edgekit.compiler.pipeline.variant_build import VariantBuild, lost_variant
from edgekit.compiler.quantize.placement.float8_pairs import with_float8_pairs
from edgekit.errors import UsageError
from edgekit.system.timings import files_digest
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


def add_float8(
    variants: Sequence[VariantBuild], data: QuantizationData, options: BuildOptions, faults: Faults
) -> list[VariantBuild]:
    """Return the variants, with the fp8 one of each float parent before it: nothing times either here."""
    extended: list[VariantBuild] = []
    for parent in variants:
        name = f"{parent.profile.name}-{options.precision}"
        if not parent.artifact.files:  # the target met a fault, which the report tells
            extended.append(parent)
            continue
        built = faults.contain(parent.profile.name, name, partial(_build, name, parent, data, options))
        if isinstance(built, Fault):
            built = lost_variant(name, parent.target, options.precision, parent, built)
        extended += [built, parent]
    return extended


def _build(name: str, parent: VariantBuild, data: QuantizationData, options: BuildOptions) -> VariantBuild:
    target, context, precision = parent.target, data.search_context, options.precision
    assert target.rules is not None
    model, plan = with_float8_pairs(context.model, target.rules, context.observations)
    artifact = target.compiler.compile_model(model, target.profile, precision)
    evidence: Evidence = {
        "size_bytes": artifact.size_bytes,
        "compile": dict(artifact.facts),
        "quantization": {
            "scheme": "fp8 (E4M3) weights and activations",
            "placement": "all",
            "integer_nodes": len(plan.nodes),
            "float": {"count": 0, "names": []},
            "samples": dict(data.counts),
        },
    }
    digest = files_digest(artifact.files)
    variant = VariantBuild(name, target, precision, artifact, digest, evidence, parent, forced=options.force)
    evaluate_held_out(variant, model, data.held_out, options)
    return variant
