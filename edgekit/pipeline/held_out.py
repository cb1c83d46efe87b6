"""The last word on a quantized variant: it is run on samples that no choice was made on, and scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.bundle.variant import Status
from edgekit.errors import EdgeKitError, reason_of
from edgekit.evaluate import verify
from edgekit.evaluate.fidelity import Evaluator, Score
from edgekit.evaluate.verify import ReferenceOutputs
from edgekit.model.reference import Reference
from edgekit.pipeline.build_options import BuildOptions
from edgekit.pipeline.variant_build import VariantBuild
from edgekit.tensors import Array

if TYPE_CHECKING:
    import onnx_ir as ir

DEVICE_MARGIN_DB = 6.0
"""How much lower the SNR of the golden vector may be on a device: another kernel that rounds otherwise adds
noise of its own, as strong as that of the first (3 dB), and one vector tells little (3 dB more)."""


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What quantized variants are finally judged on.

    Attributes:
        reference: The held-out samples and the float model's outputs for them.
        evaluator: Scores outputs for these samples.
        labelled: The task's own metric of the float model on them, where they are labelled.
    """

    reference: ReferenceOutputs
    evaluator: Evaluator
    labelled: Score | None


def evaluate_held_out(
    variant: VariantBuild, model: ir.Model, held_out: HeldOut, asked: BuildOptions
) -> verify.Ran | None:
    """Run a variant on the held-out samples and score it: its evidence and its status say what came of it.

    Args:
        variant: It was compiled from ``model`` and is not verified yet.
        model: The Q/DQ graph, which the reference runs where no engine is installed here.
        held_out: What it is judged on.
        asked: What is good enough.

    Returns:
        What ran on an engine, or on what stands in for it; None where nothing did.
    """
    missing = variant.target.missing()
    if missing is not None:
        variant.reason = missing.for_bundles
        reference = Reference(model)
        outputs = [reference.run(sample) for sample in held_out.reference.samples]
        score_outputs(variant, outputs, held_out, asked)
        return None
    engine = variant.target.executor()
    version = variant.evidence["engine"] = engine.engine_version()
    try:
        ran = verify.run_artifact(variant.artifact, engine, held_out.reference, variant.evidence)
    except EdgeKitError as problem:
        variant.outcome, variant.reason = Status.REJECTED, reason_of(problem)
        return None
    variant.outcome, variant.reason = Status.VERIFIED, verify.verified_on(version, ran.absent)
    score_outputs(variant, ran.answers, held_out, asked)
    return ran


def score_outputs(
    variant: VariantBuild, outputs: Sequence[Mapping[str, Array]], held_out: HeldOut, asked: BuildOptions
) -> None:
    """Score a variant's outputs, write that into its evidence, and reject what is not good enough.

    Args:
        variant: What gave them.
        outputs: For each of the held-out samples.
        held_out: What it is judged on.
        asked: What is good enough.
    """
    found, reference = held_out.evaluator.evaluate(outputs), held_out.reference
    limits_db = {}
    for spec in reference.outputs:
        first = verify.compare([reference.expected[0][spec.name]], [outputs[0][spec.name]], 0).snr_db
        # What a device is held to, on the golden vector: the first of these samples.
        limits_db[spec.name] = (
            verify.SNR_LIMITS_DB["int8"] if first is None else round(max(first - DEVICE_MARGIN_DB, 0.0), 1)
        )
    accuracy = verify.compare_outputs(reference, outputs, limits_db)
    variant.evidence["accuracy"] = {name: error.as_json() for name, error in accuracy.items()}
    variant.evidence["agreement"] = {**found.score.as_json(), "samples": len(outputs)}
    if found.task is not None and held_out.labelled is not None:
        variant.evidence["task"] = {**found.task.as_json(), "float": round(held_out.labelled.value, 4)}
    missed = asked.goal.missed(found, held_out.labelled)
    if missed:
        variant.reject(missed)
