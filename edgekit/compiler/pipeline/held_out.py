"""Test of a quantized variant: run and score it on the held-out samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from edgekit.bundle.evidence import Agreement
from edgekit.bundle.variant import Status
from edgekit.compiler.evaluate import verify
from edgekit.compiler.evaluate.fidelity import Evaluator, Fidelity, Score
from edgekit.compiler.evaluate.golden_limit import DEVICE_MARGIN_DB
from edgekit.compiler.evaluate.kept_boxes import Kept
from edgekit.compiler.evaluate.kept_outputs import keep_outputs
from edgekit.compiler.evaluate.samples import hold_one_value
from edgekit.compiler.evaluate.verify import ReferenceOutputs
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.pipeline.build_options import BuildOptions
from edgekit.compiler.pipeline.variant_build import VariantBuild
from edgekit.errors import EdgeKitError, reason_of
from edgekit.system import breadcrumbs
from edgekit.system.progress import counted
from edgekit.tensor_spec import Array


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out samples that quantized variants are tested on.

    Attributes:
        reference: The held-out samples and the float model's outputs for them.
        evaluator: Evaluator of outputs for these samples.
        labelled: The float model's score on them by the task's own metric; None if they have no labels.
    """

    reference: ReferenceOutputs
    evaluator: Evaluator
    labelled: Score | None


def evaluate_held_out(
    variant: VariantBuild,
    model: ir.Model,
    held_out: HeldOut,
    options: BuildOptions,
    before: Kept | None = None,
) -> verify.Ran | None:
    """Run a variant on the held-out samples and score it. The result goes into its evidence and status.

    Args:
        model: The Q/DQ graph, which the reference executor runs if no engine is installed.
        before: Predictions that it keeps on the validation samples.

    Returns:
        The run on the engine or on a reference executor; None if neither is available or the run failed.
    """
    missing = variant.target.missing()
    if missing is not None:
        variant.reason = missing.for_bundles
        reference = Reference(model)
        outputs = keep_outputs(map(reference.run, counted(held_out.reference.samples, "samples")))
        score_outputs(variant, outputs, held_out, options, before)
        return None
    engine = variant.target.executor()
    version = variant.evidence["engine"] = engine.engine_version()
    try:
        with breadcrumbs.at_risk(f"test of {variant.name}{f', {variant.config}' if variant.config else ''}"):
            ran = verify.run_artifact(variant.artifact, engine, held_out.reference, variant.evidence)
    except EdgeKitError as problem:
        variant.outcome, variant.reason = Status.REJECTED, reason_of(problem, for_bundles=True)
        return None
    variant.outcome, variant.reason = Status.VERIFIED, verify.verified_on(version, ran.absent, ran.emulation)
    score_outputs(variant, ran.outputs, held_out, options, before)
    return ran


def score_outputs(
    variant: VariantBuild,
    outputs: Sequence[Mapping[str, Array]],
    held_out: HeldOut,
    options: BuildOptions,
    before: Kept | None = None,
) -> None:
    """Score a variant's outputs, record the scores in its evidence, and reject it if it misses the goal."""
    fidelity, reference = held_out.evaluator.evaluate(outputs, prove=True), held_out.reference
    limits_db = {}
    for spec in reference.outputs:
        first = verify.compare([reference.expected[0][spec.name]], [outputs[0][spec.name]], 0).snr_db
        # The limit for a device on the golden vector, which is the first of these samples.
        limits_db[spec.name] = (
            verify.SNR_LIMITS_DB["int8"] if first is None else round(max(first - DEVICE_MARGIN_DB, 0.0), 1)
        )
    accuracy = verify.compare_outputs(reference, outputs, limits_db)
    variant.evidence["accuracy"] = {name: error.as_json() for name, error in accuracy.items()}
    record_scores(variant, fidelity, len(outputs), held_out, before)
    if not_proved := options.goal.not_proved(fidelity):
        variant.evidence["agreement"]["not_proved"] = not_proved
    variant.doubtful = options.goal.is_doubtful(fidelity)
    missed = options.goal.missed(fidelity, held_out.labelled, before=before)
    if hold_one_value(reference.expected):
        missed = (
            "the float model's outputs are constant on all test samples, so int8 cannot be judged; add "
            "different samples"
        )
    if missed:
        variant.reject(missed)


def record_scores(
    variant: VariantBuild, fidelity: Fidelity, samples: int, held_out: HeldOut, before: Kept | None = None
) -> None:
    """Record a variant's scores on a number of held-out samples in its evidence."""
    agreement: Agreement = {**fidelity.score.as_json(), "samples": samples}  # type: ignore[typeddict-item]
    if fidelity.proof is not None:
        agreement["low"] = round(fidelity.proof.low, 4)
    variant.evidence["agreement"] = agreement
    if fidelity.kept is not None:
        together = fidelity.kept.together(before) if before is not None else fidelity.kept
        share = round(together.share, 4)
        variant.evidence["kept"] = {"kept": fidelity.kept.matched, "of": fidelity.kept.total, "share": share}
    if fidelity.task is not None and held_out.labelled is not None:
        variant.evidence["task"] = {**fidelity.task.as_json(), "float": round(held_out.labelled.value, 4)}
