"""The memories of a profile as limits: a variant that does not fit is rejected, even by force.

A profile has the limits as its facts ``ram`` and ``flash``. The memory of a variant is known, the best first,
by the estimate for the profile's device (``CostEstimate.memory_bytes``), by the engine that ran the variant
(``Runner.facts()["memory_bytes"]``), or by the compiler (``Artifact.facts["memory_bytes"]``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edgekit.bundle.evidence import MemoryUse
from edgekit.compiler.pipeline.faults import Fault
from edgekit.compiler.pipeline.variant_build import VariantBuild
from edgekit.system.formats.plain_text import kibibytes

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
