"""Variants of a build: the reference that they are verified with, and their times relative to each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import onnx_ir as ir

from edgekit.bundle.evidence import Evidence
from edgekit.bundle.variant import Status, status_text
from edgekit.compiler.evaluate import verify
from edgekit.compiler.evaluate.kept_outputs import keep_outputs
from edgekit.compiler.evaluate.noise_floor import with_exact_transforms, with_perturbed_sums
from edgekit.compiler.evaluate.relative_time import FASTER
from edgekit.compiler.evaluate.samples import Sample
from edgekit.compiler.evaluate.saturation import saturating_outputs
from edgekit.compiler.evaluate.timing import Timed
from edgekit.compiler.evaluate.verify import ReferenceOutputs
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.pipeline.faults import Fault, Faults, traceback_path
from edgekit.compiler.quantize.search.measurement import CandidateConfig
from edgekit.errors import BuildFault
from edgekit.system.cpu import processor_kind
from edgekit.system.progress import counted
from edgekit.target.build_target import BuildTarget
from edgekit.target.contract import Artifact
from edgekit.target.precisions import precision_of
from edgekit.target.profile import Profile
from edgekit.target.quant_rules import Rules
from edgekit.tensor_spec import Array, TensorSpec

T = TypeVar("T")

SLOWER_LIMIT = 1.25
"""Largest latency relative to the parent, by the fastest runs; slower variants are rejected. In interleaved
runs equal variants have differed by up to 1.16 on two busy cores; a real slowdown (a cast that stays, an op
off the fast path) is larger. int8 costs accuracy, so what EdgeKit quantized must be faster."""
INT8_LIMITS = {"quantization": 1.0, "stored_weights": 1.03}
"""The same for int8, by the key in its evidence. Weight-only int8 is not meant to be faster; up to 1.03 is
noise where only the two variants are interleaved."""
NARROW_LIMIT = 1.0
"""The same for bf16 and fp16 arithmetic: it costs accuracy, and its files are not smaller."""
SHRUNK_LIMIT = FASTER
"""The same for smaller models, which cost more: timed with the parent alone, in turns."""
FLOOR_SAMPLES = 2
"""Number of samples that the noise floor is measured on; each costs one more run of the reference."""


@dataclass(frozen=True, eq=False)
class Shrunk:
    """Manifest data of a variant that computes a smaller model.

    Attributes:
        multiplications: Multiplications of one run of the source model, and of the smaller one.
        share: Requested share to remove, 0 to 1.
        golden: The smaller model's outputs for the bundle's golden vector.
        outputs_of: The variant that computed them; "" if all variants of the same model share them.
    """

    multiplications: tuple[int, int]
    share: float
    golden: Mapping[str, Array]
    outputs_of: str = ""

    @property
    def entry(self) -> str:
        """Return the name of its golden outputs in the bundle."""
        return f"shrunk-{self.outputs_of or self.multiplications[1]}"


@dataclass
class VariantBuild:
    """Variant under construction: a trial compiles it, and writes its outcome and evidence.

    Attributes:
        parent: The variant that it must improve on, or None.
        forced: Whether to ship it even if it would be rejected, as long as it compiles.
        shrunk: Data of a smaller model; None for the source model.
        config: Candidate that an int8 variant was made from, else None.
        outcome: Verified, rejected or not run.
        reason: Engine that verified it, or the reason that it was not verified.
        objection: Reason that it would have been rejected if it were not forced; "" if there is none.
        title: Its name in the bundle. "" means one of its profile and precision.
        doubtful: Whether it meets its accuracy limit on the test samples, but they do not prove that.
    """

    target: BuildTarget
    precision: str
    parent: VariantBuild | None = None
    forced: bool = False
    shrunk: Shrunk | None = None
    config: CandidateConfig | None = None
    artifact: Artifact = field(default_factory=lambda: Artifact({}))
    digest: str = ""
    evidence: Evidence = field(default_factory=lambda: Evidence(size_bytes=0))
    outcome: Status = Status.NOT_RUN
    reason: str = "not verified yet"
    objection: str = ""
    title: str = ""
    doubtful: bool = False

    @property
    def name(self) -> str:
        """Return its name in the bundle, e.g. ``rpi5-int8`` or ``ort-shrunk30-fp32``."""
        if self.title:
            return self.title
        size = f"shrunk{100 * self.shrunk.share:.0f}-" if self.shrunk is not None else ""
        return f"{self.profile.name}-{size}{self.precision}"

    @property
    def profile(self) -> Profile:
        return self.target.profile

    @property
    def rules(self) -> Rules:
        """Return the quantization rules of a target that has some."""
        assert self.target.rules is not None
        return self.target.rules

    @property
    def to_time(self) -> Timed:
        return Timed(self.target.engine, self.artifact, self.digest)

    @property
    def status(self) -> str:
        """Return outcome and reason in the manifest's form."""
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
        """Return whether a reference executor ran it instead of its engine."""
        return self.ran and "stands_in_for" in self.evidence.get("executed", {})

    @property
    def timed(self) -> bool:
        """Return whether its times are its engine's; a reference executor's do not apply to a device."""
        return self.ran and not self.by_reference

    @property
    def is_narrow(self) -> bool:
        """Return whether it computes floats in a narrower type than its parent."""
        return precision_of(self.precision).is_narrow

    @property
    def slower_limit(self) -> float:
        """Return the largest latency relative to its parent; above it the variant is rejected."""
        if self.shrunk is not None:
            return SHRUNK_LIMIT
        limit = next((limit for kind, limit in INT8_LIMITS.items() if kind in self.evidence), None)
        if limit is None:
            return NARROW_LIMIT if self.is_narrow else SLOWER_LIMIT
        return limit if runs_here(self.profile) else math.inf

    def reject(self, reason: str) -> None:
        """Reject it, or note the objection if it is forced. The first reason stays."""
        if self.rejected or self.objection:
            return
        if self.forced:
            self.objection = reason
        else:
            self.outcome, self.reason = Status.REJECTED, reason

    def attempt(self, faults: Faults, step: Callable[[], T]) -> T | None:
        """Return the result of a step, or None if a fault in it costs this variant."""
        outcome = faults.contain(self.profile.name, self.name, step)
        if not isinstance(outcome, Fault):
            return outcome
        self.lose(outcome)
        return None

    def lose(self, fault: Fault) -> None:
        """Reject it for a fault, even if it is forced: it does not work."""
        self.outcome, self.reason, self.objection = Status.REJECTED, fault.reason, ""
        if fault.is_bug:
            self.evidence["fault"] = {"error": fault.error, "traceback": fault.traceback}


def by_profile(variants: Sequence[VariantBuild]) -> dict[str, list[VariantBuild]]:
    """Group variants by the name of their profile."""
    groups: dict[str, list[VariantBuild]] = {}
    for variant in variants:
        groups.setdefault(variant.profile.name, []).append(variant)
    return groups


def parent_of(group: Sequence[VariantBuild]) -> VariantBuild | None:
    """Return the float parent among the variants of a profile, or None if it was lost."""
    return next((variant for variant in group if variant.artifact.files), None)


def runs_here(profile: Profile) -> bool:
    """Return whether times measured here apply to the profile: it names this processor kind, or none.

    The gain of integer kernels depends on the processor: up to four times with int8 dot products, none
    without.
    """
    fact = profile.facts.get("arch")
    return fact is None or processor_kind(fact.value) == processor_kind()


def run_reference(
    source: ir.Model,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    samples: Sequence[Sample],
) -> ReferenceOutputs:
    """Run the source model on the samples, and on slightly perturbed ones for the noise floor of each output.

    If an input is not float, sums in the model are perturbed instead.
    """
    reference = Reference(source)
    expected = keep_outputs(map(reference.run, counted(samples, "samples")))
    chosen = samples[:FLOOR_SAMPLES]
    if any(np.dtype(spec.dtype).kind != "f" for spec in inputs):
        reference = Reference(with_perturbed_sums(source))
    perturbed = [reference.run(verify.perturbed(sample, seed)) for seed, sample in enumerate(chosen)]
    others = [perturbed]
    if (exact := with_exact_transforms(source)) is not None:
        reference = Reference(exact)
        others.append([reference.run(sample) for sample in chosen])
    floors_db = {}
    for output in outputs:
        floors = [_floor_db(output.name, expected[: len(chosen)], runs) for runs in others]
        floors_db[output.name] = min((floor for floor in floors if floor is not None), default=None)
    return ReferenceOutputs(inputs, outputs, samples, expected, saturating_outputs(source), floors_db)


def _floor_db(
    name: str, expected: Sequence[Mapping[str, Array]], outputs: Sequence[Mapping[str, Array]]
) -> float | None:
    """Compute the noise floor of an output in dB, that of the worst sample; None if it is unknown.

    It is computed by sample, because only the first one is the golden vector. For a text detector (PP-OCRv4)
    on random noise, that sample gives 57 dB and all samples together 78, for the same rounding.
    """
    pairs = zip(expected, outputs, strict=True)
    snrs_db = [verify.compare([e[name]], [m[name]], 0).snr_db for e, m in pairs]
    return min((snr_db for snr_db in snrs_db if snr_db is not None), default=None)


def refuse_if_all_are_lost(
    name: str, faults: Faults, targets: Sequence[BuildTarget], variants: Sequence[VariantBuild]
) -> None:
    """Check that not every variant is lost: a bundle without any variant to run is not made.

    Raises:
        BuildFault: names each target, its fault and the file of its traceback.
    """
    lost = faults.by_profile
    profiles = [target.profile.name for target in targets]
    if any(not v.rejected for v in variants) or not all(profile in lost for profile in profiles):
        return
    lines = [f"{name} could not be built for any target"]
    for profile in profiles:
        path = traceback_path(lost[profile].traceback)
        lines.append(f"  {profile}  {lost[profile].error}" + (f"; traceback: {path}" if path else ""))
    is_bug = any(lost[profile].is_bug for profile in profiles)
    lines.append("  nothing was written" + ("; please report this with the traceback" if is_bug else ""))
    raise BuildFault("\n".join(lines))
