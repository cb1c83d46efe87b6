"""Verification of a bundle's golden vectors on the engines of this machine."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from importlib import import_module
from typing import cast

from edgekit.bundle.bundle import Bundle, opened
from edgekit.bundle.cost_text import cost_notes
from edgekit.bundle.kept_variants import kept_variants
from edgekit.bundle.report import checked_evidence
from edgekit.bundle.variant import Variant
from edgekit.compiler.evaluate.verify import (
    OutputError,
    ReferenceOutputs,
    check_output_form,
    compare,
    compare_outputs,
    limits_db,
    not_as_declared,
    verified_on,
)
from edgekit.errors import BundleError, EngineError, MissingDependency, reason_of
from edgekit.processing.generation import is_generation
from edgekit.runtime.loading import unpacked_files
from edgekit.runtime.loading.golden_check import evidence_limit_db, like
from edgekit.system.formats.plain_text import table
from edgekit.system.formats.shown import Shown
from edgekit.system.progress import counted
from edgekit.system.python_calls import public
from edgekit.target import contract, registry
from edgekit.target.precisions import precision_of
from edgekit.target.registry import open_ready
from edgekit.target.shapes import shapes_text
from edgekit.tensor_spec import Array, Json

PACKAGE = "package"
"""Key of the manifest's ``source``: the bundle was made from a model package of an engine."""
ELSEWHERE = " (CPU); made for "
"""In the reason of a variant of a package that was verified on the CPU, before the provider it is for."""
DECODERS = "edgekit.generate.host.judge.verify_language"
"""Module that checks bundles of language models."""


class CheckOutcome(Enum):
    """Outcome of the check of a variant on this machine."""

    VERIFIED = "verified"
    FAILED = "failed"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Check:
    """Check of one variant on this machine.

    Attributes:
        reason: Engine that verified it, or the reason that it was not verified.
        outputs: The error of each output, by name; empty if there is no result.
        estimates: Estimate of the target's own tool at the build, as text: not part of the check.
    """

    variant: str
    outcome: CheckOutcome
    reason: str
    outputs: Mapping[str, OutputError] = field(default_factory=dict)
    estimates: Sequence[str] = ()

    @property
    def status(self) -> str:
        separator = " " if self.outcome is CheckOutcome.VERIFIED else ": "
        return f"{self.outcome.value}{separator}{self.reason}"

    @property
    def failed(self) -> bool:
        return self.outcome is CheckOutcome.FAILED

    @property
    def ran(self) -> bool:
        return self.outcome is not CheckOutcome.NOT_RUN

    def as_json(self) -> dict[str, Json]:
        outputs = {name: error.as_json() for name, error in self.outputs.items()}
        estimates = {"estimates": list(self.estimates)} if self.estimates else {}
        return {"variant": self.variant, "status": self.status, "outputs": outputs, **estimates}


@public
def verify(bundle: str | os.PathLike[str] | Bundle, *, progress: bool = True) -> Shown[Check]:
    """Run a bundle's variants on its golden vectors, with the engines of this machine.

    Args:
        bundle: A path, or an open bundle.
        progress: Whether a terminal or a notebook shows a line while it runs.

    Returns:
        The check of each variant: ``failed``, ``ran`` and ``status``. It prints as a table.

    Raises:
        BundleError: the bundle cannot be opened, an entry is damaged, or there is no golden vector.
        NoVariantError: the build rejected every variant.
    """
    with opened(bundle) as open_bundle:
        checks = verify_bundle(open_bundle)
    return Shown(checks, render(checks))


def verify_bundle(bundle: Bundle) -> list[Check]:
    """Check every hash of the bundle, then run its variants on its golden vectors.

    The limits are those that the build recorded for each output, even of a variant that it could not run. A
    bundle without recorded limits is checked against those of the precision.

    Raises:
        BundleError: an entry is damaged, or there is no golden vector.
        NoVariantError: the build rejected every variant.
    """
    bundle.verify_entries()
    if is_generation(bundle.card):
        return cast("list[Check]", import_module(DECODERS).check_decoders(bundle))
    if not bundle.golden:
        raise BundleError(f"{bundle.name} has no golden vectors to verify with; build it again")
    with checked_evidence(bundle.name):
        notes = {variant.name: tuple(cost_notes(variant)) for variant in bundle.variants}
    checks = [
        replace(_check(bundle, v), estimates=notes[v.name]) for v in counted_variants(kept_variants(bundle))
    ]
    if PACKAGE in bundle.manifest["source"]:  # its user has the rejected variants too
        elsewhere = {v.name: v.reason.partition(ELSEWHERE) for v in bundle.variants}
        checks = [replace(c, reason=c.reason + "".join(elsewhere[c.variant][1:])) for c in checks]
        outcomes = {True: CheckOutcome.FAILED, False: CheckOutcome.NOT_RUN}
        checks += [Check(v.name, outcomes[v.rejected], v.reason) for v in bundle.variants if not v.files]
    for name in bundle.stages:
        checks += [replace(c, variant=f"{name}: {c.variant}") for c in verify_bundle(bundle.stage(name))]
    return checks


def counted_variants(variants: Sequence[Variant]) -> Iterator[Variant]:
    """Yield the variants, with a progress line."""
    return counted(variants, "variants", name="verifying", describe=lambda variant: variant.name)


def render(checks: Sequence[Check]) -> str:
    """Format the checks for ``edgekit verify``."""
    rows = [(check.variant, _worst(check), check.status) for check in checks]
    lines = table(("variant", "worst output", "on this machine"), rows)
    lines += [f"  estimate  {check.variant}  {estimate}" for check in checks for estimate in check.estimates]
    if not any(check.ran for check in checks):
        lines.append(
            "  none of the bundle's engines is installed here (run edgekit targets for the pip commands)"
        )
    return "\n".join(lines)


def _worst(check: Check) -> str:
    """Return the SNR of the output that is nearest its limit, or "-" without a result."""
    known = [error for error in check.outputs.values() if error.snr_db is not None]
    if not known:
        return "-"
    worst = min(known, key=lambda error: (error.snr_db or 0.0) - error.limit_db)
    shown = "equal" if worst.snr_db == math.inf else f"{worst.snr_db:.1f} dB"
    return f"{shown} (limit {worst.limit_db:g})"


def _check(bundle: Bundle, variant: Variant) -> Check:
    engine = registry.engine(variant.target)
    try:
        version = engine.engine_version()
    except MissingDependency as missing:
        return Check(variant.name, CheckOutcome.NOT_RUN, str(missing))
    try:
        files = unpacked_files.unpack(bundle, variant)
        runner = open_ready(engine, files, bundle.inputs, bundle.outputs, variant.options, threads=1)
        try:
            golden = bundle.golden_of(variant)
            answers = [runner.run(feeds) for feeds, _ in golden]
            shapes = [bundle.shapes[-1]] * len(bundle.golden) + list(bundle.shapes[:-1])
            for answer, (_, outputs) in zip(answers, shapes, strict=False):
                check_output_form([answer], outputs)
            absent, precision = contract.stands_in_for(runner), runner.precision
        finally:
            runner.close()
    except EngineError as problem:
        if isinstance(problem.__cause__, MissingDependency):  # of a deferral's part
            return Check(variant.name, CheckOutcome.NOT_RUN, str(problem))
        return Check(variant.name, CheckOutcome.FAILED, f"{version}: {reason_of(problem)}")
    except Exception as problem:  # as a Session does: an engine may throw anything at a file from elsewhere
        return Check(variant.name, CheckOutcome.FAILED, f"{version}: {reason_of(problem)}")
    if reason := not_as_declared(variant.options, precision):
        return Check(variant.name, CheckOutcome.NOT_RUN, reason)
    return _judge(bundle, variant, verified_on(version, absent), answers)


def _judge(bundle: Bundle, variant: Variant, engine: str, answers: Sequence[Mapping[str, Array]]) -> Check:
    pairs = list(zip((outputs for _, outputs in bundle.golden_of(variant)), answers, strict=True))
    largest = len(bundle.golden)
    errors = _errors(bundle, variant, pairs[:largest], 0.0)
    of_shapes = [("", errors)] + [
        (f" at {shapes_text(shape.inputs)}", _errors(bundle, variant, [pair], MARGIN_DB))
        for pair, shape in zip(pairs[largest:], bundle.shapes, strict=False)
    ]
    for shape_label, shape_errors in of_shapes:
        for name, error in shape_errors.items():
            if not error.within_limit:
                reason = f"output {name}{shape_label}: {error}; the limit is {error.limit_db:g} dB"
                return Check(variant.name, CheckOutcome.FAILED, reason, errors)
    return Check(variant.name, CheckOutcome.VERIFIED, engine, errors)


def _errors(
    bundle: Bundle,
    variant: Variant,
    pairs: Sequence[tuple[Mapping[str, Array], Mapping[str, Array]]],
    margin_db: float,
) -> dict[str, OutputError]:
    return {
        o.name: compare(
            [e[o.name] for e, _ in pairs], [like(e[o.name], a[o.name]) for e, a in pairs],
            _limit_db(variant, o.name) - margin_db,
        )
        for o in bundle.outputs
    }  # fmt: skip


def _limit_db(variant: Variant, output: str) -> float:
    recorded = evidence_limit_db(variant.evidence, output)
    return precision_of(variant.precision).snr_limit_db if recorded is None else recorded


MARGIN_DB = 6.0
"""Maximum drop of the SNR there, in dB: twice the noise's amplitude."""


def lowest_snr_db(reference: ReferenceOutputs, results: Sequence[Mapping[str, Array]]) -> float:
    """Return the SNR of the worst output in dB; infinite if all are equal to the reference's, and minus
    infinity if one differs in shape or in which values are finite."""
    errors = compare_outputs(reference, results, {spec.name: 0.0 for spec in reference.outputs})
    return min((e.snr_db for e in errors.values() if e.snr_db is not None), default=math.inf)


def limit_elsewhere_db(reference: ReferenceOutputs, precision: str, snr_db: float) -> float:
    limits = limits_db(reference.outputs, reference.saturating, reference.floors_db, precision)
    return min(min(limits.values()), snr_db - MARGIN_DB)
