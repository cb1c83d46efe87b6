"""The first three sentences about a bundle: what to use where, what it costs, what to do next.

A time names the machine that took it, which is the one of the build and seldom the device; what was not timed
or scored gets no figure.

Pure text from the manifest, for the page (edgekit/report) and for notebooks; a device can print it as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgekit.bundle.search_text import more_time
from edgekit.bundle.variant import Variant, fastest_first
from edgekit.system.formats.plain_text import milliseconds, size
from edgekit.target.precisions import FULL_PRECISION
from edgekit.tensor_spec import Json


def advice(manifest: Mapping[str, Json], variants: Sequence[Variant]) -> tuple[str, str, str]:
    """Recommend variants: what to use where, what it costs, and what to do next, a sentence each.

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
    use = _variants_text(chosen, variants)
    if manifest.get("cascade"):
        use = f"For the first stage, u{use[1:-1]}; later stages run on each crop."
    return use, _cost(chosen, variants), _next(manifest, chosen, variants)


def advised(variants: Sequence[Variant]) -> list[Variant]:
    """Choose the variant to use of each profile: a deferral, else the fastest one of the source model. If
    none is timed, the smallest one: all of them met their limits of accuracy, or were forced. A smaller
    model's variant is never advised. A session on the build machine tries them in the same order."""
    chosen = []
    for group in _by_profile(variants).values():
        times_ms = {v.name: time_ms for v in group if (time_ms := p50_ms(v)) is not None}
        chosen.append(fastest_first(group, times_ms)[0])
    return chosen


def _by_profile(variants: Sequence[Variant]) -> dict[str, list[Variant]]:
    groups: dict[str, list[Variant]] = {}
    for variant in variants:
        if variant.usable and variant.shrunk is None:
            groups.setdefault(variant.profile, []).append(variant)
    return {
        profile: [member for member in group if member.target == "deferral"] or group
        for profile, group in groups.items()
    }


def p50_ms(variant: Variant) -> float | None:
    """Return the median time of a run on the build machine in ms, or None if it was not timed."""
    timing = variant.evidence.get("timing")
    return float(timing["p50_ms"]) if timing else None


def timed_on_its_kind(variant: Variant) -> bool:
    """Return whether it was timed on the kind of processor that its profile names, or not timed at all."""
    return not (variant.evidence.get("timing") or {}).get("elsewhere")


def stood_in(variant: Variant) -> bool:
    """Return whether it did not run on its own engine: a reference executor ran it, or nothing did."""
    executed = variant.evidence.get("executed")
    return not variant.verified or bool(executed and executed.get("stands_in_for"))


def machine(variant: Variant) -> str:
    """Return the processor and threads that a variant was timed on, e.g. ``AMD EPYC 9B45, 2 threads``."""
    timing = variant.evidence["timing"]
    return f"{timing['cpu']}, {timing['threads']} thread{'s' if timing['threads'] > 1 else ''}"


def _variants_text(chosen: Sequence[Variant], variants: Sequence[Variant]) -> str:
    parts = [f"{v.name} on {v.profile} ({size(v.evidence['size_bytes'])})" for v in chosen]
    times: dict[str, list[str]] = {}
    for variant in chosen:
        if (p50 := p50_ms(variant)) is not None and timed_on_its_kind(variant):
            generation = variant.evidence.get("generation")
            unit = "" if generation is None else " a text" if "texts" in generation else " a token"
            times.setdefault(machine(variant), []).append(f"{variant.name} {milliseconds(p50)}{unit}")
    notes = [f"timed on {device}: {_listed(entries)}" for device, entries in times.items()]
    if names := [v.name for v in chosen if not timed_on_its_kind(v)]:
        notes.append(f"timed on another kind of processor only: {_listed(names)}")
    groups = _by_profile(variants)
    for note, is_choice in (("not timed, so the smallest", True), ("not timed", False)):
        names = [
            variant.name
            for variant in chosen
            if p50_ms(variant) is None and (len(groups[variant.profile]) > 1) is is_choice
        ]
        notes += [f"{note}: {_listed(names)}"] if names else []
    return f"Use {_listed(parts)}; {'; '.join(notes)}."


def _cost(chosen: Sequence[Variant], variants: Sequence[Variant]) -> str:
    """Compare variants other than fp32 with the fp32 variant of their profile: size, time and accuracy. Times
    are compared if both were taken on the same machine, which is named."""
    changed = [v for v in chosen if v.precision != FULL_PRECISION]
    if not changed:
        return "These are float32, like the source model; the table shows how close each one is to it."
    fp32 = {v.profile: v for v in variants if v.precision == FULL_PRECISION and v.shrunk is None}
    pairs = [(v, fp32[v.profile]) for v in changed if v.profile in fp32]
    sizes = [v.evidence["size_bytes"] / whole for v, p in pairs if (whole := p.evidence["size_bytes"])]
    parts = [f"{_span(sizes, '.0%')} of the space of fp32"] if sizes else ["no fp32 variant to compare with"]
    timed: dict[str, list[tuple[Variant, float]]] = {}
    for variant, parent in pairs:
        variant_ms, whole = p50_ms(variant), p50_ms(parent)
        if variant_ms and whole and machine(variant) == machine(parent):
            timed.setdefault(machine(variant), []).append((variant, variant_ms / whole))
    for device, rows in timed.items():
        ratios = [ratio for _, ratio in rows]
        parts.append(
            f"{_owner_names([v for v, _ in rows], changed)}{_span(ratios, '.0%')} of its time on {device}"
        )
    scores = [(v, variant_score) for v in changed if (variant_score := _score(v)) is not None]
    for metric in dict.fromkeys(str(score["metric"]) for _, score in scores):
        own_scores = [(v, score) for v, score in scores if score["metric"] == metric]
        span = _span([score["value"] for _, score in own_scores], ".3f")
        whole = own_scores[0][1].get("float", 1.0)
        parts.append(
            f"{_owner_names([v for v, _ in own_scores], changed)}{metric} {span} (float model {whole:.3f})"
        )
    return f"{_listed([v.name for v in changed])}: {'; '.join(parts)}."


def _owner_names(variants: Sequence[Variant], named: Sequence[Variant]) -> str:
    """Return the names of the variants that a figure belongs to; "" if it belongs to all."""
    return "" if len(variants) == len(named) else f"{_listed([v.name for v in variants])} "


def _score(variant: Variant) -> Mapping[str, Json] | None:
    """Return the task's metric on labels, or else the agreement with the float model, or None if it has
    neither."""
    for name in ("task", "agreement"):
        score: Mapping[str, Json] | None = variant.evidence.get(name)
        if score and not score["unit"] and score["value"] is not None:
            return score
    return None


def _next(manifest: Mapping[str, Json], chosen: Sequence[Variant], variants: Sequence[Variant]) -> str:
    away = [v for v in chosen if stood_in(v)]
    if "random" in str(manifest["samples"].get("origin", "")):
        return "Next: build again with real --samples, because these figures are from random inputs."
    if away:
        names = [v.profile for v in away if not _runs_apps_alone(manifest, v)]
        apps = [v for v in away if _runs_apps_alone(manifest, v)]
        steps = [f"run edgekit verify on {_listed(names)}, which the build did not have"] if names else []
        if apps:
            steps.append(
                f"take {_listed([v.name for v in apps])} to {_listed([v.profile for v in apps])} with "
                "edgekit export and measure it in the app, for edgekit verify does not run there"
            )
        return f"Next: {'; '.join(steps)}."
    cut = [search for v in variants if (search := v.evidence.get("search") or {}).get("left_out")]
    if cut:
        least_complete = max(cut, key=lambda search: search["left_out"] / max(len(search["tried"]), 1))
        return f"Next: {more_time(least_complete)} to measure the int8 candidates that were left out."
    return "Next: copy the bundle to the device and run edgekit verify there."


def _runs_apps_alone(manifest: Mapping[str, Json], variant: Variant) -> bool:
    """Return whether the device of a variant's profile has no Python: a phone, or a microcontroller."""
    profile = (manifest.get("profiles") or {}).get(variant.profile) or {}
    facts = profile.get("facts") or {}
    system = str((facts.get("os") or {}).get("value", "")).lower()
    return system.startswith(("ios", "android")) or "flash" in facts


def _span(values: Sequence[float], form: str) -> str:
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
