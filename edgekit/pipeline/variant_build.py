"""Trials: each variant of a build is compiled, verified and timed; then it is kept, or rejected and why."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgekit.bundle.evidence import Evidence
from edgekit.bundle.variant import Status, status_text
from edgekit.evaluate import verify
from edgekit.evaluate.noise_floor import with_perturbed_sums
from edgekit.evaluate.relative_time import ratio_to_parent
from edgekit.evaluate.samples import Samples
from edgekit.evaluate.timing import Timed, confirmed_ratio, time_in_turns
from edgekit.model.reference import Reference
from edgekit.system.cpu import processor_kind
from edgekit.target import registry
from edgekit.target.contract import Artifact
from edgekit.tensors import Array, TensorSpec

if TYPE_CHECKING:
    import onnx_ir as ir

    from edgekit.target.profile import Profile

SLOWER_LIMIT = 1.25
"""A variant whose fastest run takes more than this times its parent's is rejected. Timed in turns, equal
variants have differed by up to 1.16 on two busy cores; a real loss (a cast that stays, an op off the fast
path) is larger. int8 costs accuracy: what we quantized must be faster."""
INT8_LIMITS = {"quantization": 1.0, "stored_weights": 1.03}
"""The same for int8, by what its evidence holds: weights alone in int8 are no gain in time, and up to 1.03 no
loss, where the two alone take turns."""
FLOOR_SAMPLES = 2
"""Samples that the noise floor is measured on; each costs one more run of the reference."""


@dataclass(frozen=True)
class ReferenceOutputs:
    """What variants are compared with: samples and the source model's answers."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    samples: Samples
    expected: Sequence[Mapping[str, Array]]
    saturating: set[str]
    floors_db: Mapping[str, float | None]

    def limits_db(self, precision: str) -> dict[str, float]:
        return verify.limits_db(self.outputs, self.saturating, self.floors_db, precision)


@dataclass
class VariantBuild:
    """One variant on its way: ``outcome`` and ``evidence`` change as it is verified, timed and judged.

    Attributes:
        outcome: Verified, rejected or not run.
        reason: On which engine it was verified, or why it was not.
        forced: It is shipped whatever is found of it, as long as it can be made.
        objection: Why it would have been rejected, were it not forced; "" where nothing speaks against it.
    """

    name: str
    profile: Profile
    precision: str
    artifact: Artifact
    digest: str
    evidence: Evidence
    parent: VariantBuild | None
    outcome: Status = Status.NOT_RUN
    reason: str = "not verified yet"
    forced: bool = False
    objection: str = ""

    @property
    def status(self) -> str:
        """Outcome and reason as the manifest has them."""
        forced = f", shipped by force: {self.objection}" if self.objection else ""
        return status_text(self.outcome, self.reason) + forced

    @property
    def rejected(self) -> bool:
        return self.outcome is Status.REJECTED

    @property
    def ran(self) -> bool:
        return self.outcome is Status.VERIFIED

    @property
    def by_reference(self) -> bool:
        """Whether not its engine ran it, but a reference executor that stands in for it."""
        return self.ran and "stands_in_for" in self.evidence.get("executed", {})

    @property
    def timed(self) -> bool:
        """Whether its times are those of its engine: a reference executor's say nothing of a device."""
        return self.ran and not self.by_reference

    @property
    def slower_limit(self) -> float:
        """Time over its parent's from which on it is rejected."""
        limit = next((limit for kind, limit in INT8_LIMITS.items() if kind in self.evidence), None)
        if limit is None:
            return SLOWER_LIMIT
        return limit if runs_here(self.profile) else math.inf

    def reject(self, why: str) -> None:
        """What was rejected first stays so. By force a variant is shipped all the same, and says so."""
        if self.rejected or self.objection:
            return
        if self.forced:
            self.objection = why
        else:
            self.outcome, self.reason = Status.REJECTED, why


def runs_here(profile: Profile) -> bool:
    """Whether times that are measured here tell the profile's: its processor is of this kind, or of any.

    An integer kernel's gain is the processor's: with dot products of bytes four times, without none.
    """
    fact = profile.facts.get("arch")
    return fact is None or processor_kind(fact.value) == processor_kind()


def run_reference(
    source: ir.Model, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...], samples: Samples
) -> ReferenceOutputs:
    """Run the source model on the samples, and on nudged ones for the noise floor of each output; where an
    input holds no floats, with nudged sums."""
    reference = Reference(source)
    expected = [reference.run(sample) for sample in samples.arrays]
    few = samples.arrays[:FLOOR_SAMPLES]
    if any(np.dtype(spec.dtype).kind != "f" for spec in inputs):
        reference = Reference(with_perturbed_sums(source))
    moved = [reference.run(verify.perturbed(sample, seed)) for seed, sample in enumerate(few)]
    floors_db = {o.name: _floor_db(o.name, expected[: len(few)], moved) for o in outputs}
    return ReferenceOutputs(inputs, outputs, samples, expected, verify.saturating_outputs(source), floors_db)


def build_variant(
    canonical: ir.Model,
    profile: Profile,
    precision: str,
    truth: ReferenceOutputs,
    before: Sequence[VariantBuild],
    parent: VariantBuild | None = None,
) -> VariantBuild:
    """Compile a variant and verify it; what ``before``, the trials so far, verified is not run again."""
    compiler = registry.compiler(profile.target)
    compiled_as = precision if precision in compiler.TARGET.precisions else "fp32"
    artifact = compiler.compile_model(canonical, profile, compiled_as)
    artifact = registry.refine_artifact(
        profile.target, canonical, profile, compiled_as, artifact, truth.samples.arrays
    )
    digest = Timed(profile.target, artifact).digest
    name = f"{profile.name}-{precision}"
    if parent is not None and digest == parent.digest:
        copied, why = deepcopy(parent.evidence), f"the same bytes as {parent.name}"
        return VariantBuild(name, profile, precision, artifact, digest, copied, parent, Status.REJECTED, why)
    key = (profile.target, precision, digest)
    same = next((t for t in before if (t.profile.target, t.precision, t.digest) == key), None)
    if same is not None:
        copied = deepcopy(same.evidence)
        return VariantBuild(
            name, profile, precision, artifact, digest, copied, parent, same.outcome, same.reason
        )
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        found = verify.verify(
            artifact,
            profile.target,
            precision,
            Path(folder),
            truth.inputs,
            truth.outputs,
            truth.samples.arrays,
            truth.expected,
            truth.limits_db(precision),
            verify.fp16_limits_db(truth.outputs, truth.floors_db),
        )
    return VariantBuild(
        name, profile, precision, artifact, digest, found.evidence, parent, found.outcome, found.reason
    )


def time_variants(trials: Sequence[VariantBuild], truth: ReferenceOutputs) -> None:
    """Time the variants that verified, in turns, and reject those slower than their parent."""
    ran = [trial for trial in trials if trial.timed]
    unique = {(t.profile.target, t.digest): Timed(t.profile.target, t.artifact) for t in ran}
    timings = time_in_turns(list(unique.values()), truth.inputs, truth.outputs, truth.samples.arrays[0])
    by_key = dict(zip(unique, timings, strict=True))
    for trial in ran:
        trial.evidence["timing"] = by_key[trial.profile.target, trial.digest]
    for trial in ran:
        parent = trial.parent
        if parent is not None and parent.timed:
            timing, limit = trial.evidence["timing"], trial.slower_limit
            parent_ms = parent.evidence["timing"]["min_ms"]
            ratio = timing["min_ms"] / parent_ms
            one, other = (Timed(t.profile.target, t.artifact) for t in (trial, parent))
            sample = truth.samples.arrays[0]
            if "stored_weights" in trial.evidence:
                ratio = timing["ratio"] = ratio_to_parent(one, other, truth.inputs, truth.outputs, sample)
            elif ratio > limit:  # nothing is rejected for one busy moment
                ratio = confirmed_ratio(
                    one, other, timing, parent_ms, limit, truth.inputs, truth.outputs, sample
                )
            if ratio > limit:
                trial.reject(f"{ratio:.2f}x the time of {parent.name}")
    for trial in ran:  # the same bytes have the same times, and each build its own record of them
        trial.evidence["timing"] = trial.evidence["timing"].copy()


def _floor_db(
    name: str, expected: Sequence[Mapping[str, Array]], moved: Sequence[Mapping[str, Array]]
) -> float | None:
    """The noise floor of one output; None where the nudge changes nothing."""
    return verify.compare([e[name] for e in expected], [m[name] for m in moved], 0).snr_db
