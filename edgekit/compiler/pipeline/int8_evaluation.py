"""Test of an int8 candidate on the held-out samples: a variant, accepted or rejected with a reason."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial

import onnx_ir as ir

from edgekit.bundle.evidence import Evidence
from edgekit.bundle.variant import Status
from edgekit.compiler.pipeline.build_job import BuildJob
from edgekit.compiler.pipeline.causes import causes_of_int8
from edgekit.compiler.pipeline.forecast import TEST, part
from edgekit.compiler.pipeline.held_out import evaluate_held_out
from edgekit.compiler.pipeline.quantization_data import QuantizationData
from edgekit.compiler.pipeline.try_variant import Compiled, try_variant
from edgekit.compiler.pipeline.variant_build import VariantBuild, runs_here
from edgekit.compiler.quantize.search.candidates import Candidates, QuantizedCandidate
from edgekit.compiler.quantize.search.measurement import CandidateConfig
from edgekit.system import breadcrumbs
from edgekit.system.progress import Notify

OTHER_PROCESSOR = "its processor is of a different kind, so times measured here were not used"
NAMED = 3
"""How many blocks a reason names."""


def try_int8(
    job: BuildJob,
    data: QuantizationData,
    parent: VariantBuild,
    candidates: Candidates,
    notify: Notify,
    config: CandidateConfig,
    before: Sequence[VariantBuild],
) -> VariantBuild:
    """Try a candidate as a variant, on the held-out samples. Its precision is numbered after those before."""
    search = f"{parent.profile.name} {job.options.precision}"
    notify(
        f"{parent.profile.name}: testing on {data.counts['prove']} held-out samples",
        part=part(search, TEST, len(before)),
    )

    def compile_variant(variant: VariantBuild) -> Compiled:
        with breadcrumbs.at_risk(f"compiled {config}"):
            compiled = candidates.compile(config)
        variant.precision = _precision(compiled, before)
        return Compiled(
            compiled.artifact, partial(judge, model=compiled.model), int8_evidence(data, compiled)
        )

    def judge(variant: VariantBuild, model: ir.Model) -> None:
        fidelity = candidates.measure(config).fidelity
        retained = fidelity.kept if fidelity is not None and not data.counts["not_held_out"] else None
        evaluate_held_out(variant, model, data.held_out, job.options, retained)
        if variant.outcome is Status.NOT_RUN:
            variant.reason += "; accuracy is that of the Q/DQ graph by the reference"
        variant.evidence["causes"] = causes_of_int8(candidates, config)

    variant = VariantBuild(parent.target, "int8", parent, job.options.force, config=config)
    return try_variant(variant, job.faults, compile_variant)


def float_reasons(variant: VariantBuild, block_snr_db: Mapping[str, float]) -> list[str]:
    """Return why blocks stayed float, by the SNR in dB with only their part quantized, for the manifest;
    nothing of blocks that are faster in float."""
    names = variant.evidence["quantization"]["float"]["names"]
    other = [] if runs_here(variant.profile) else [OTHER_PROCESSOR]
    parts = {block_snr_db[name]: name for name in reversed(names) if name in block_snr_db}
    figures = ", ".join(
        f"the part with {parts[snr_db]} alone leaves {snr_db:.1f} dB" for snr_db in sorted(parts)[:NAMED]
    )
    return [f"{len(names)} blocks stay float: {figures}", *other] if figures else other


def _precision(candidate: QuantizedCandidate, before: Sequence[VariantBuild]) -> str:
    """Return ``int8``, or ``int8-mixed`` if blocks stay float, numbered from the second one on."""
    name = "int8-mixed" if candidate.floats else "int8"
    same = sum(re.fullmatch(rf"{name}(-\d+)?", variant.precision) is not None for variant in before)
    return f"{name}-{same + 1}" if same else name


def int8_evidence(data: QuantizationData, candidate: QuantizedCandidate) -> Evidence:
    """Return the manifest's evidence on a candidate's quantization."""
    floats = candidate.floats
    return {
        **data.equalized(),
        "quantization": {
            "scheme": f"int8 weights, {candidate.rules.activations} activations",
            "choice": str(candidate.config),
            "placement": candidate.config.placement,
            "recipe": asdict(candidate.config.recipe),
            "integer_nodes": len(candidate.plan.nodes),
            "float": {"count": len(floats), "names": floats},
            "samples": dict(data.counts),
        },
    }
