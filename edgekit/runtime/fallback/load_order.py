"""The order in which a session loads the variants of its bundle, from the times known on this device."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgekit.bundle.device_evidence import times_of_this_processor
from edgekit.errors import UsageError
from edgekit.runtime.fallback.policy import (
    LoadOrder,
    RankedVariant,
    built_for_instructions,
    built_for_processor,
    estimates,
    rank,
)
from edgekit.system import cpu, timings
from edgekit.system.interrupts import pass_on
from edgekit.target import registry

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle
    from edgekit.bundle.variant import Variant
    from edgekit.runtime.session_state import SessionOptions

PREPARED = "prepared_on_device"
"""Option of a variant whose engine is built on the device, which takes minutes (background.py)."""
LIKELY, FAR_SLOWER = 8, 10.0
"""Most variants that are measured, and the ratio of times beyond which a variant is not: a busy build's
times were wrong by 5."""
SLOW_OPENING_MS, SOONER = 300.0, 4.0
"""A session answers with another variant until its best one is open, if that takes at least so long, and the
other one opens in at most this part of it."""


def rank_variants(
    bundle: Bundle, options: SessionOptions, local_times: Mapping[str, tuple[float, str]]
) -> LoadOrder:
    """Return the load order of a session.

    Args:
        local_times: Times that were measured on this device: variant -> (ms, engine).

    Raises:
        UsageError: the bundle has no such variant, or none for the engine.
    """
    variants, requested, name = bundle.variants, options.engine, options.variant
    if name is not None:
        named = next((variant for variant in variants if variant.name == name), None)
        if named is None:
            have = ", ".join(variant.name for variant in variants) or "none at all"
            raise UsageError(f"{bundle.name} has no variant {name!r}; it has {have}")
        if requested not in (None, named.target):
            raise UsageError(f"variant {name} is for engine {named.target}, not for {requested}; give one")
    targets = sorted({variant.target for variant in variants})
    if requested is not None and requested not in targets:
        raise UsageError(
            f"{bundle.name} has no variant for engine {requested!r}; "
            f"it has {', '.join(targets) or 'none at all'}"
        )
    profiles, kind = bundle.manifest["profiles"], cpu.processor_kind()
    unsuited = {v.name: reason for v in variants if (reason := cpu.lacking(v.options))}
    forged = (v.name for v in variants if registry.ACCELERATOR in v.options)
    unsuited |= dict.fromkeys(forged, f"its option {registry.ACCELERATOR} is for a session to set")
    preferred: frozenset[str] = frozenset()
    if not local_times and not times_of_this_processor(bundle.manifest, options.threads):
        suited = [v for v in variants if v.name not in unsuited]
        preferred = built_for_processor(variants, profiles, kind) or built_for_instructions(suited, profiles)
    times_ms = expected_ms(bundle, options.threads, local_times)
    order = rank(variants, times_ms, requested, preferred, name, unsuited)
    if options.device == "cpu":
        return order
    from edgekit.runtime.fallback.accelerated import with_copies  # here: most sessions run on the CPU

    return with_copies(order, options)


def expected_ms(
    bundle: Bundle, threads: int, local_times: Mapping[str, tuple[float, str]]
) -> dict[str, float]:
    """Return the expected time of a run here in ms, by variant: the build's times, scaled by those of a
    device with this processor, and these by the times of this machine (``local_timings.recalled``)."""
    built = {v.name: timings.milliseconds_of(v.evidence.get("timing")) for v in bundle.variants}
    built_ms = {name: time_ms for name, time_ms in built.items() if time_ms is not None}
    known_ms = estimates(built_ms, times_of_this_processor(bundle.manifest, threads))
    return estimates(known_ms, {name: time_ms for name, (time_ms, _) in local_times.items()})


def likely(order: LoadOrder) -> list[RankedVariant]:
    """Return the candidates of which one may be the fastest here: as complete and verified as the first one,
    and by their times not far slower."""
    if not order.candidates:
        return []
    first = order.candidates[0].variant
    peers = [
        candidate
        for candidate in order.candidates
        if (candidate.variant.shrunk is None, candidate.variant.verified)
        == (first.shrunk is None, first.verified)
        and "deferral" not in (candidate.variant.target, first.target)
        and not candidate.variant.options.get(PREPARED)
    ]
    fastest_ms = min((c.time_ms for c in peers if c.time_ms is not None), default=0.0)
    return [c for c in peers if c.time_ms is None or c.time_ms <= FAR_SLOWER * fastest_ms][:LIKELY]


def opens_sooner(order: LoadOrder, options: SessionOptions) -> RankedVariant | None:
    """Return the candidate that opens soonest, if the best one takes long to open and it far less; else
    None. The times are the build's."""
    best_ms = _opening_ms(order.candidates[0].variant) if order.candidates else 0.0
    if best_ms < SLOW_OPENING_MS:
        return None
    for candidate in sorted(likely(order), key=lambda c: _opening_ms(c.variant) or math.inf):
        variant = candidate.variant
        if not 0 < _opening_ms(variant) <= best_ms / SOONER:
            break
        try:
            registry.engine(variant.target).engine_version()
            if not why_emulated(variant, options):
                return candidate
        except Exception as problem:  # its engine is missing, or does not import
            pass_on(problem)
    return None


def _opening_ms(variant: Variant) -> float:
    """Return how long a variant took to open where it was built, in ms; 0 if it is not known."""
    timing = variant.evidence.get("timing")
    load_ms = timing.get("load_ms") if isinstance(timing, dict) else None
    return timings.milliseconds_of({"p50_ms": load_ms}) or 0.0


def why_emulated(variant: Variant, options: SessionOptions) -> str:
    """Return the reason that a session must not run a variant, or "" if it may. The reason is that its engine
    only emulates the device, and neither of them was requested. The target's module ``run`` is imported.

    Raises:
        ProfileError: no such target.
    """
    stands_in_for = registry.engine(variant.target).ENGINE.stands_in_for
    if stands_in_for is None or variant.target == options.engine or variant.name == options.variant:
        return ""
    device = stands_in_for()
    return f"needs {device}; engine={variant.target!r} runs an emulation of it here" if device else ""
