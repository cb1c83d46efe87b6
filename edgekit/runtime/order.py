"""The order in which a session tries the variants of its bundle: by fallback.py, from what is known here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgekit import measured
from edgekit.errors import UsageError
from edgekit.runtime.fallback import Plan, estimates, made_for, rank

if TYPE_CHECKING:
    from edgekit.bundle import Bundle


def ranked(bundle: Bundle, asked: str | None, times_here: Mapping[str, tuple[float, str]]) -> Plan:
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
    built = {v.name: measured.milliseconds_of(v.evidence.get("timing")) for v in variants}
    here = {name: time_ms for name, (time_ms, _) in times_here.items()}
    known = {name: time_ms for name, time_ms in built.items() if time_ms is not None}
    profiles, kind = bundle.manifest["profiles"], measured.processor_kind()
    preferred = frozenset() if here else made_for(variants, profiles, kind)
    return rank(variants, estimates(known, here), asked, preferred)
