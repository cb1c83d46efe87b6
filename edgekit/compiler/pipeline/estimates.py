"""Cost estimates of variants by their target's own tool, and the memories of a profile as limits.

A profile has the limits as its facts ``ram`` and ``flash``; a variant that does not fit is rejected, even by
force. The memory of a variant is known, the best first, by the estimate for the profile's device
(``CostEstimate.memory_bytes``), by the engine that ran the variant (``Runner.facts()["memory_bytes"]``), or
by the compiler (``Artifact.facts["memory_bytes"]``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import partial

from edgekit.bundle.evidence import CostEvidence, MemoryUse
from edgekit.compiler.pipeline.faults import Fault, Faults
from edgekit.compiler.pipeline.variant_build import VariantBuild
from edgekit.errors import EdgeKitError, reason_of
from edgekit.system.formats.plain_text import kibibytes


def estimate_costs(variants: Sequence[VariantBuild], faults: Faults) -> int:
    """Write an estimate, or why there is none, into the evidence of each variant that is kept, and return the
    number of estimates. Variants with the same files for the same profile share one.
    """
    cost_by_key: dict[tuple[str, str], CostEvidence | None] = {}
    for variant in variants:
        if variant.target.info.estimate is None or variant.rejected or not variant.artifact.files:
            continue
        key = (variant.profile.name, variant.digest)
        if key not in cost_by_key:
            cost_by_key[key] = _estimated(variant, faults)
        if (cost := cost_by_key[key]) is not None:
            variant.evidence["cost"] = deepcopy(cost)
    return sum("tool" in v.evidence.get("cost", {}) for v in variants)


def _estimated(variant: VariantBuild, faults: Faults) -> CostEvidence | None:
    estimate = variant.target.info.estimate
    assert estimate is not None
    run = partial(estimate, variant.artifact.files, variant.profile)
    try:
        outcome = faults.contain(variant.profile.name, variant.name, run)
    except EdgeKitError as problem:  # e.g. the tool is not installed
        return {"failed": reason_of(problem, for_bundles=True)}
    if outcome is None:
        return None
    if isinstance(outcome, Fault):
        return {"failed": outcome.reason}
    return outcome.as_json()  # type: ignore[return-value]


MEMORIES = ("ram", "flash")
"""Facts of a profile that limit what a variant may take."""


def hold_to_memory(variants: Sequence[VariantBuild]) -> None:
    """Write what each variant takes into its evidence, and reject those that do not fit their profile."""
    for variant in variants:
        use_by_name = dict(_memory_use(variant))
        if not use_by_name or not variant.artifact.files:
            continue
        variant.evidence["memory"] = use_by_name
        excesses = [
            f"{kibibytes(use['bytes'])} of {name.upper() if name == 'ram' else name} ({use['by']}), but "
            f"{variant.profile.title} has {kibibytes(use['limit_bytes'])}"
            for name, use in use_by_name.items()
            if use["limit_bytes"] is not None and use["bytes"] > use["limit_bytes"]
        ]
        if excesses and not variant.rejected:
            variant.lose(Fault(f"needs {'; '.join(excesses)}", is_bug=False))


def _memory_use(variant: VariantBuild) -> Iterator[tuple[str, MemoryUse]]:
    evidence, facts = variant.evidence, variant.profile.facts
    cost = evidence.get("cost", {})
    records = (
        (cost.get("memory_bytes"), f"estimated by {cost.get('tool')}"),
        (evidence.get("runner", {}).get("memory_bytes"), f"recorded by {evidence.get('engine')}"),
        (evidence.get("compile", {}).get("memory_bytes"), "of its files"),
    )
    for name in MEMORIES:
        limit = facts[name].value * 1024 if name in facts else None
        for used, source in records:
            if used and name in used:
                yield name, {"bytes": int(used[name]), "limit_bytes": limit, "by": source}
                break
