"""What a candidate is worth on the samples that no choice was made on: the variant, or why there is none."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from edgekit.bundle.evidence import Evidence
from edgekit.bundle.variant import Status
from edgekit.errors import EdgeKitError, reason_of
from edgekit.pipeline.build_options import BuildOptions
from edgekit.pipeline.held_out import evaluate_held_out
from edgekit.pipeline.quantization_data import QuantizationData
from edgekit.pipeline.variant_build import VariantBuild, runs_here
from edgekit.quantize.search.candidates import Candidates, CompiledCandidate
from edgekit.quantize.search.measurement import CandidateConfig
from edgekit.system.timings import files_digest
from edgekit.target.contract import Artifact

NAMED = 3
"""So many blocks are named in a reason."""


def evaluate_int8(
    data: QuantizationData,
    parent: VariantBuild,
    asked: BuildOptions,
    candidates: Candidates,
    config: CandidateConfig,
    before: Sequence[VariantBuild],
) -> VariantBuild:
    """Make a candidate a variant, and judge it on the held-out samples."""
    target = parent.target
    try:
        compiled = candidates.compile(config)
    except EdgeKitError as problem:
        name, none, why = f"{target.profile.name}-int8", Artifact({}), reason_of(problem)
        return VariantBuild(name, target, "int8", none, "", {"size_bytes": 0}, parent, Status.REJECTED, why)
    precision = _name(compiled, before)
    digest, evidence = files_digest(compiled.artifact.files), _evidence(data, compiled)
    name = f"{target.profile.name}-{precision}"
    variant = VariantBuild(
        name, target, precision, compiled.artifact, digest, evidence, parent, forced=asked.force
    )
    evaluate_held_out(variant, compiled.model, data.held_out, asked)
    if variant.outcome is Status.NOT_RUN:
        variant.reason += "; accuracy is that of the Q/DQ graph by the reference"
    return variant


def because(config: CandidateConfig, trial: VariantBuild, damage: Mapping[str, float]) -> list[str]:
    """Why blocks stayed float, in words."""
    names = trial.evidence["quantization"]["float"]["names"]
    other = [] if runs_here(trial.profile) else ["its processor is of another kind: times here chose nothing"]
    if not names:
        return other
    hurt = sorted((name for name in names if name in damage), key=lambda name: damage[name])[:NAMED]
    figures = ", ".join(f"{name} alone leaves {damage[name]:.1f} dB" for name in hurt)
    text = f"{len(names)} blocks stay float ({config.placement})" + (f": {figures}" if figures else "")
    return [text, *other]


def _name(made: CompiledCandidate, before: Sequence[VariantBuild]) -> str:
    """``int8``, or ``int8-mixed`` where blocks stay float; numbered from the second on."""
    name = "int8-mixed" if made.floats else "int8"
    same = sum(re.fullmatch(rf"{name}(-\d+)?", trial.precision) is not None for trial in before)
    return f"{name}-{same + 1}" if same else name


def _evidence(data: QuantizationData, made: CompiledCandidate) -> Evidence:
    floats = made.floats
    return {
        "size_bytes": sum(map(len, made.artifact.files.values())),
        "compile": dict(made.artifact.facts),
        "quantization": {
            "scheme": f"int8 weights, {made.rules.activations} activations",
            "placement": made.config.placement,
            "recipe": asdict(made.config.recipe),
            "integer_nodes": len(made.plan.nodes),
            "float": {"count": len(floats), "names": floats},
            "samples": dict(data.counts),
        },
    }
