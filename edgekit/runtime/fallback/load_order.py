"""The order in which a session tries the variants of its bundle: by fallback.py, from what is known here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgekit.errors import UsageError
from edgekit.runtime.fallback.policy import LoadOrder, estimates, made_for, rank
from edgekit.system import cpu, timings

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle


def rank_variants(
    bundle: Bundle, asked: str | None, times_here: Mapping[str, tuple[float, str]]
) -> LoadOrder:
    """The plan of a session.

    Args:
        bundle: Has the variants.
        asked: The target to try first; None: any.
        times_here: What sessions of this machine measured: variant -> (ms, engine).

    Raises:
        UsageError: the bundle has nothing for ``asked``.
    """
    variants = bundle.variants
    targets = sorted({variant.target for variant in variants})
    if asked is not None and asked not in targets:
        raise UsageError(
            f"{bundle.name} has no variant for engine {asked!r}; it has {', '.join(targets) or 'none at all'}"
        )
    built = {v.name: timings.milliseconds_of(v.evidence.get("timing")) for v in variants}
    here = {name: time_ms for name, (time_ms, _) in times_here.items()}
    known = {name: time_ms for name, time_ms in built.items() if time_ms is not None}
    profiles, kind = bundle.manifest["profiles"], cpu.processor_kind()
    preferred = frozenset() if here else made_for(variants, profiles, kind)
    return rank(variants, estimates(known, here), asked, preferred)
