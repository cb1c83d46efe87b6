"""Choices of a budget: the variants between which it switches, the most accurate first."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from edgekit.bundle.variant import Variant
from edgekit.runtime import local_timings
from edgekit.runtime.fallback.load_order import expected_ms
from edgekit.runtime.fallback.policy import estimates
from edgekit.runtime.latency.switching import PrecisionChoice
from edgekit.runtime.predictor import SessionProtocol
from edgekit.runtime.streaming.replica import variant_of
from edgekit.system import cpu
from edgekit.target.precisions import precision_of
from edgekit.target.registry import ACCELERATOR

WORTH = 0.9
"""A variant is a choice if its run takes at most this share of the next more accurate one's."""


def variant_on_cpu(variant: Variant) -> str | None:
    """Return the name of the variant that an accelerated copy is of; None if it is not a copy."""
    return variant.name.partition("@")[0] if ACCELERATOR in variant.options else None


def choices(
    session: SessionProtocol, beside_copy: Mapping[str, float] = MappingProxyType({})
) -> list[PrecisionChoice]:
    """Return the usable variants of the active engine: the most accurate first, then faster ones.

    Only the active one if their relative times are unknown. If the session runs on an accelerator, its copy
    is the first, and the CPU's variants follow.

    Args:
        beside_copy: Times of a run in ms, measured now, by name: of the active accelerated copy and of its
            variant on the CPU. Empty means those of the CPU cannot be chosen.
    """
    active, known_ms = variant_of(session, session.active.variant), times_ms(session, beside_copy)
    copy = active.options.get(ACCELERATOR)
    if copy is not None and active.name not in beside_copy:
        return [PrecisionChoice(active.name, 1.0, accuracy(active), str(copy))]
    timed = sorted(
        (v for v in _engine_variants(session) if v.name in known_ms), key=lambda v: known_ms[v.name]
    )
    chosen: list[PrecisionChoice] = []
    fastest: dict[str, Variant] = {}
    for variant in timed:
        fastest.setdefault(variant.precision if variant.shrunk is None else variant.name, variant)

    def loss(variant: Variant) -> tuple[bool, int, float]:
        # Of the search results int8 and int8-2 the slower one is the more accurate. So it is of smaller
        # models: the build keeps none that is slower and less accurate than another.
        smaller = variant.shrunk is not None
        rank = 0 if smaller else precision_of(variant.precision).accuracy_rank
        return smaller, rank, -known_ms[variant.name]

    for candidate in sorted(fastest.values(), key=loss):
        time_ms = known_ms[candidate.name]
        if not chosen or time_ms <= WORTH * chosen[-1].time_ms:
            chosen.append(PrecisionChoice(candidate.name, time_ms, accuracy(candidate)))
    if copy is not None:
        chosen.insert(0, PrecisionChoice(active.name, beside_copy[active.name], accuracy(active), str(copy)))
    return chosen or [PrecisionChoice(active.name, 1.0, accuracy(active))]


def _engine_variants(session: SessionProtocol) -> list[Variant]:
    """Return the verified variants of the active engine that this processor computes as declared."""
    engine = variant_of(session, session.active.variant).target
    verified = [v for v in session.bundle.variants if v.target == engine and v.verified]
    return [v for v in verified if not cpu.lacking(v.options)]


def times_ms(
    session: SessionProtocol, measured: Mapping[str, float] = MappingProxyType({})
) -> Mapping[str, float]:
    """Return the expected time of a run on the CPU in ms by variant, as far as relative times are known; as
    the session expects them."""
    recalled = local_timings.recalled(session.bundle)
    names = {variant.name for variant in _engine_variants(session) if variant.usable}
    known_ms = expected_ms(session.bundle, session.threads, recalled)
    return {
        name: time_ms
        for name, time_ms in estimates(known_ms, {n: t for n, t in measured.items() if n in names}).items()
        if name in names
    }


def accuracy(variant: Variant) -> str:
    """Return the accuracy of a variant by its evidence: the task's metric, the agreement, or the SNR."""
    for name in ("task", "agreement"):
        score = variant.evidence.get(name)
        if isinstance(score, Mapping) and isinstance(score.get("value"), float):
            return f"{score.get('metric')} {score['value']:.3f}"
    from edgekit.bundle.report import lowest_snr

    try:
        snr = lowest_snr(variant)
    except (AttributeError, LookupError, TypeError, ValueError):
        snr = "-"  # a bundle from elsewhere may hold anything there
    return f"{variant.precision}, accuracy not measured" if snr == "-" else f"{variant.precision}, {snr}"
