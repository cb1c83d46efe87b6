"""Cost estimates of variants by their target's own tool, if it has one."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import partial

from edgekit.bundle.evidence import CostEvidence
from edgekit.compiler.pipeline.faults import Fault, Faults
from edgekit.compiler.pipeline.variant_build import VariantBuild
from edgekit.errors import EdgeKitError, reason_of


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
