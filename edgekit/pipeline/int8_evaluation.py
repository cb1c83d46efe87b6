"""What a candidate is worth on the samples that no choice was made on: the variant, or why there is none."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.bundle.evidence import Evidence
from edgekit.bundle.variant import Status
from edgekit.errors import EdgeKitError, MissingDependency, reason_of
from edgekit.evaluate import verify
from edgekit.evaluate.fidelity import Evaluator, Score
from edgekit.model.reference import Reference
from edgekit.pipeline.build_options import BuildOptions
from edgekit.pipeline.quantization_data import QuantizationData
from edgekit.pipeline.variant_build import VariantBuild, runs_here
from edgekit.quantize.search.candidates import Candidates, CompiledCandidate
from edgekit.quantize.search.measurement import CandidateConfig, Measurement
from edgekit.system.timings import files_digest
from edgekit.target.contract import Artifact
from edgekit.tensors import Array, TensorSpec

if TYPE_CHECKING:
    from edgekit.target.profile import Profile

DEVICE_MARGIN_DB = 6.0
"""How much lower the SNR of the golden vector may be on a device: another kernel that rounds otherwise adds
noise of its own, as strong as that of the first (3 dB), and one vector tells little (3 dB more)."""
NAMED = 3
"""So many blocks are named in a reason."""


def evaluate_int8(
    ground: QuantizationData,
    profile: Profile,
    before: Sequence[VariantBuild],
    parent: VariantBuild,
    asked: BuildOptions,
    candidates: Candidates,
    tried: Measurement,
    version: str,
) -> VariantBuild:
    """Run a candidate on the samples that no choice was made on."""
    try:
        made = candidates.compile(tried.config)
    except EdgeKitError as problem:
        name, none, why = f"{profile.name}-int8", Artifact({}), reason_of(problem)
        return VariantBuild(name, profile, "int8", none, "", {"size_bytes": 0}, parent, Status.REJECTED, why)
    trial = _trial(made, profile, before, parent, asked, ground)
    trial.evidence["engine"] = version
    bench = ground.bench
    try:
        with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
            ran = verify.run_artifact(
                made.artifact,
                profile.target,
                Path(folder),
                bench.inputs,
                bench.outputs,
                ground.prove,
                trial.evidence,
            )
    except EdgeKitError as problem:
        trial.outcome, trial.reason = Status.REJECTED, reason_of(problem)
        return trial
    trial.outcome, trial.reason = Status.VERIFIED, verify.verified_on(version, ran.absent)
    evaluate_outputs(trial, ran.answers, ground.judge, bench.outputs, asked, ground.labelled[1])
    return trial


def evaluate_emulated(
    ground: QuantizationData,
    profile: Profile,
    parent: VariantBuild,
    asked: BuildOptions,
    candidates: Candidates,
    tried: Measurement,
    missing: MissingDependency,
) -> VariantBuild:
    """What :func:`evaluate_int8` gives where no engine can run the candidate here: the reference runs it."""
    made = candidates.compile(tried.config)
    trial = _trial(made, profile, (), parent, asked, ground)
    trial.reason = f"{missing.for_bundles}; accuracy is that of the Q/DQ graph by the reference"
    reference = Reference(made.model)
    answers = [reference.run(sample) for sample in ground.prove]
    evaluate_outputs(trial, answers, ground.judge, ground.bench.outputs, asked, ground.labelled[1])
    return trial


def evaluate_outputs(
    trial: VariantBuild,
    answers: Sequence[Mapping[str, Array]],
    judge: Evaluator,
    outputs: Sequence[TensorSpec],
    asked: BuildOptions,
    labelled: Score | None,
) -> None:
    """Score answers, write them into the evidence, and reject what is not good enough.

    Args:
        trial: What gave them.
        answers: For each of the judge's samples.
        judge: Knows the float model's answers.
        outputs: The source model's.
        asked: What is good enough.
        labelled: The task's own metric of the float model on the same samples, where they are labelled.
    """
    found = judge.evaluate(answers)
    expected = judge.expected
    accuracy = {}
    for spec in outputs:
        first = verify.compare([expected[0][spec.name]], [answers[0][spec.name]], 0).snr_db
        # What a device is held to, on the golden vector: the first of these samples.
        limit_db = (
            verify.SNR_LIMITS_DB["int8"] if first is None else round(max(first - DEVICE_MARGIN_DB, 0.0), 1)
        )
        error = verify.compare([e[spec.name] for e in expected], [a[spec.name] for a in answers], limit_db)
        accuracy[spec.name] = error.as_json()
    trial.evidence["accuracy"] = accuracy
    trial.evidence["agreement"] = {**found.score.as_json(), "samples": len(answers)}
    if found.task is not None and labelled is not None:
        trial.evidence["task"] = {**found.task.as_json(), "float": round(labelled.value, 4)}
    missed = asked.goal.missed(found, labelled)
    if missed:
        trial.reject(missed)


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


def _trial(
    made: CompiledCandidate,
    profile: Profile,
    before: Sequence[VariantBuild],
    parent: VariantBuild,
    asked: BuildOptions,
    ground: QuantizationData,
) -> VariantBuild:
    """A candidate as a variant that nothing is known of yet."""
    precision = _name(made, before)
    digest = files_digest(made.artifact.files)
    name = f"{profile.name}-{precision}"
    evidence = _evidence(ground, made)
    return VariantBuild(name, profile, precision, made.artifact, digest, evidence, parent, forced=asked.force)


def _name(made: CompiledCandidate, before: Sequence[VariantBuild]) -> str:
    """``int8``, or ``int8-mixed`` where blocks stay float; numbered from the second on."""
    name = "int8-mixed" if made.floats else "int8"
    same = sum(re.fullmatch(rf"{name}(-\d+)?", trial.precision) is not None for trial in before)
    return f"{name}-{same + 1}" if same else name


def _evidence(ground: QuantizationData, made: CompiledCandidate) -> Evidence:
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
            "samples": dict(ground.counts),
        },
    }
