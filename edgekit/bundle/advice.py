"""The first three sentences about a bundle: what to use where, what it costs, what to do next.

Pure text from the manifest, for the page (edgekit/report) and for notebooks; a device can print it as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from edgekit.formats.plain_text import milliseconds, size

if TYPE_CHECKING:
    from edgekit.bundle.variant import Variant
    from edgekit.tensors import Json


def advice(manifest: Mapping[str, Json], variants: Sequence[Variant]) -> tuple[str, str, str]:
    """What to use where, what it costs, and what to do next: a sentence each.

    Args:
        manifest: Of the bundle.
        variants: Its variants, the rejected ones too.

    Raises:
        AttributeError, LookupError, TypeError, ValueError: the evidence is not what a build writes.
    """
    chosen = advised(variants)
    if not chosen:
        reasons = len(variants)
        return (
            "Nothing here can be used.",
            f"The build rejected {'its variant' if reasons == 1 else f'all {reasons} variants'}: "
            "the reasons are below.",
            "Build again with another target, another --precision or more samples.",
        )
    return _what(chosen), _cost(chosen, variants), _next(manifest, chosen, variants)


def advised(variants: Sequence[Variant]) -> list[Variant]:
    """The variant to use of each profile: a deferral, else the fastest one of the source model, or the first
    one where none is timed. A smaller model's is for those who ask for it."""
    by_profile: dict[str, list[Variant]] = {}
    for variant in variants:
        if variant.usable and variant.shrunk is None:
            by_profile.setdefault(variant.profile, []).append(variant)
    chosen = []
    for own in by_profile.values():
        own = [each for each in own if each.target == "deferral"] or own
        timed = [(p50, index) for index, each in enumerate(own) if (p50 := p50_ms(each)) is not None]
        chosen.append(own[min(timed)[1]] if timed else own[0])
    return chosen


def p50_ms(variant: Variant) -> float | None:
    """Median time of a run on the machine of the build, in ms; None where it was not timed."""
    timing = variant.evidence.get("timing")
    return float(timing["p50_ms"]) if timing else None


def stood_in(variant: Variant) -> bool:
    """Whether it did not run on its own engine: a reference executor ran it, or nothing did."""
    executed = variant.evidence.get("executed")
    return not variant.verified or bool(executed and executed.get("stands_in_for"))


def _what(chosen: Sequence[Variant]) -> str:
    parts = []
    for variant in chosen:
        p50 = p50_ms(variant)
        time = milliseconds(p50) if p50 is not None else "not timed"
        parts.append(f"{variant.name} on {variant.profile} ({time}, {size(variant.evidence['size_bytes'])})")
    return f"Use {_listed(parts)}."


def _cost(chosen: Sequence[Variant], variants: Sequence[Variant]) -> str:
    """Of what is not fp32: time and size beside the fp32 variant of the same profile, and the accuracy."""
    changed = [v for v in chosen if v.precision != "fp32"]
    if not changed:
        return "These are float32, as the source model is; the table has how close each one comes to it."
    fp32 = {v.profile: v for v in variants if v.precision == "fp32" and v.shrunk is None}
    pairs = [(v, fp32[v.profile]) for v in changed if v.profile in fp32]
    times = [own / whole for v, p in pairs if (own := p50_ms(v)) and (whole := p50_ms(p))]
    sizes = [v.evidence["size_bytes"] / whole for v, p in pairs if (whole := p.evidence["size_bytes"])]
    figures = [f"{_span(times, '.0%')} of the time"] if times else []
    figures += [f"{_span(sizes, '.0%')} of the space"] if sizes else []
    gained = f"{' and '.join(figures)} of fp32" if figures else "no fp32 variant to be compared with"
    names = _listed([v.name for v in changed])
    scores = [found for v in changed if (found := _score(v)) is not None]
    if not scores:
        return f"{names}: {gained}."
    where = "" if len(scores) == len(changed) else ", where it was measured,"
    costs = []
    for metric in dict.fromkeys(str(score["metric"]) for score in scores):
        own_scores = [score for score in scores if score["metric"] == metric]
        span = _span([score["value"] for score in own_scores], ".3f")
        costs.append(f"{metric}{where} is {span} (float model {own_scores[0].get('float', 1.0):.3f})")
    return f"{names}: {gained}; {_listed(costs)}."


def _score(variant: Variant) -> Mapping[str, Json] | None:
    """The task's metric on labels, or else the agreement with the float model; None: it has neither."""
    for name in ("task", "agreement"):
        score: Mapping[str, Json] | None = variant.evidence.get(name)
        if score and not score["unit"] and score["value"] is not None:
            return score
    return None


def _next(manifest: Mapping[str, Json], chosen: Sequence[Variant], variants: Sequence[Variant]) -> str:
    away = [v.profile for v in chosen if stood_in(v)]
    if "random" in str(manifest["samples"].get("origin", "")):
        return "Next: build again with --samples from real use, because these figures stand on random inputs."
    if away:
        return f"Next: run edgekit verify on the hardware of {_listed(away)}, which the build did not have."
    if any((v.evidence.get("search") or {}).get("left_out") for v in variants):
        return "Next: build again, because the time limit ended the search for int8 early."
    return "Next: copy the bundle to the device and run edgekit verify there."


def _span(values: Sequence[float], form: str) -> str:
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
