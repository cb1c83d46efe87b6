"""Test of an int8 candidate on the held-out samples: a variant, accepted or rejected with a reason."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from edgekit.bundle.evidence import Evidence
from edgekit.bundle.variant import Status
from edgekit.compiler.pipeline.build_options import BuildOptions
from edgekit.compiler.pipeline.held_out import evaluate_held_out
from edgekit.compiler.pipeline.quantization_data import QuantizationData
from edgekit.compiler.pipeline.variant_build import VariantBuild, runs_here
from edgekit.compiler.quantize.search.candidates import Candidates, CompiledCandidate
from edgekit.compiler.quantize.search.measurement import CandidateConfig
from edgekit.errors import EdgeKitError, reason_of
from edgekit.system import breadcrumbs
from edgekit.system.timings import files_digest
from edgekit.target.contract import Artifact

OTHER_PROCESSOR = "its processor is of a different kind, so times measured here were not used"
NAMED = 3
"""How many blocks a reason names."""


def evaluate_int8(
    data: QuantizationData,
    parent: VariantBuild,
    options: BuildOptions,
    candidates: Candidates,
    config: CandidateConfig,
    before: Sequence[VariantBuild],
) -> VariantBuild:
    """Compile a candidate as a variant, and test it on the held-out samples."""
    target = parent.target
    try:
        with breadcrumbs.at_risk(f"compiled {config}"):
            compiled = candidates.compile(config)
    except EdgeKitError as problem:
        name, none, cause = f"{target.profile.name}-int8", Artifact({}), reason_of(problem, for_bundles=True)
        return VariantBuild(name, target, "int8", none, "", {"size_bytes": 0}, parent, Status.REJECTED, cause)
    precision = _name(compiled, before)
    digest, evidence = files_digest(compiled.artifact.files), int8_evidence(data, compiled)
    name = f"{target.profile.name}-{precision}"
    variant = VariantBuild(
        name, target, precision, compiled.artifact, digest, evidence, parent, forced=options.force,
        config=config,
    )  # fmt: skip
    chosen = candidates.measure(config).fidelity
    retained = chosen.kept if chosen is not None and not data.counts["not_held_out"] else None
    evaluate_held_out(variant, compiled.model, data.held_out, options, retained)
    if variant.outcome is Status.NOT_RUN:
        variant.reason += "; accuracy is that of the Q/DQ graph by the reference"
    return variant


def because(variant: VariantBuild, block_snr_db: Mapping[str, float]) -> list[str]:
    """Return why blocks stayed float, as text for the manifest.

    Args:
        variant: The int8 variant.
        block_snr_db: Block -> SNR in dB with only that block quantized.
    """
    names = variant.evidence["quantization"]["float"]["names"]
    other = [] if runs_here(variant.profile) else [OTHER_PROCESSOR]
    if not names:
        return other
    measured = (name for name in names if name in block_snr_db)
    worst = sorted(measured, key=lambda name: block_snr_db[name])[:NAMED]
    figures = ", ".join(f"{name} alone leaves {block_snr_db[name]:.1f} dB" for name in worst)
    text = f"{len(names)} blocks stay float" + (f": {figures}" if figures else "")
    return [text, *other]


def _name(compiled: CompiledCandidate, before: Sequence[VariantBuild]) -> str:
    """Return ``int8``, or ``int8-mixed`` if blocks stay float, numbered from the second one on."""
    name = "int8-mixed" if compiled.floats else "int8"
    same = sum(re.fullmatch(rf"{name}(-\d+)?", variant.precision) is not None for variant in before)
    return f"{name}-{same + 1}" if same else name


def int8_evidence(data: QuantizationData, compiled: CompiledCandidate) -> Evidence:
    """Return the manifest's evidence on a candidate's quantization."""
    floats = compiled.floats
    return {
        "size_bytes": compiled.artifact.size_bytes,
        "compile": dict(compiled.artifact.facts),
        "quantization": {
            "scheme": f"int8 weights, {compiled.rules.activations} activations",
            "choice": str(compiled.config),
            "placement": compiled.config.placement,
            "recipe": asdict(compiled.config.recipe),
            "integer_nodes": len(compiled.plan.nodes),
            "float": {"count": len(floats), "names": floats},
            "samples": dict(data.counts),
        },
    }
