"""What to use where: for each target the fastest variant within the limit, and what it costs.

One rule for ``build``, ``inspect``, ``report`` and notebooks. A time names the machine that took it, which is
the one of the build and seldom the device; what was not timed or scored gets no figure.

Pure text from the manifest: a device can print it as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from edgekit.bundle.search_text import more_time
from edgekit.bundle.speed_order import fastest_first
from edgekit.bundle.variant import Variant
from edgekit.system.formats.plain_text import milliseconds, size, table
from edgekit.target.precisions import FULL_PRECISION, precision_of
from edgekit.tensor_spec import Json

BAR_COLUMNS = 4
"""Width of the bar of the fastest variant; a slower one's is shorter by its speed."""


class Choice(NamedTuple):
    """A variant to use.

    Attributes:
        role: ``fastest`` within the limit; ``balanced``: the fastest that loses at most half as much;
            ``accurate``: the one that loses least; ``unproved``: one that is faster, of which the samples
            prove too little.
        speed: Times the speed of the float variant of its profile; None if one of them was not timed.
    """

    role: str
    variant: Variant
    speed: float | None

    @property
    def time(self) -> str:
        """Return the median of a run on the build machine in words; "-" if its device is another kind."""
        time_ms = p50_ms(self.variant)
        if time_ms is None or not timed_on_its_kind(self.variant):
            return "-"
        return milliseconds(time_ms)

    def as_text(self) -> str:
        """Return it as a part of a sentence."""
        parts = [size(self.variant.evidence["size_bytes"])]
        parts += [self.time] if self.time != "-" else ["not timed"]
        if self.speed and self.variant.precision != FULL_PRECISION:
            parts.append(f"{self.speed:.1f}x the speed of fp32")
        if (task := _task(self.variant)) is not None:
            parts.append(f"{task['metric']} {task['value']:.3f} of {task['float']:.3f}")
        kept, low = _kept_text(self.variant)
        kept = kept if "%" not in kept else f"{kept} kept (at least {low})" if low else f"{kept} kept"
        return f"{self.variant.name} ({', '.join([*parts, kept])})"


def advice(manifest: Mapping[str, Json], variants: Sequence[Variant]) -> tuple[str, ...]:
    """Recommend variants in sentences: what to use for each profile, then what to do next.

    Raises:
        AttributeError, LookupError, TypeError, ValueError: the evidence is not what a build writes.
    """
    chosen = choices(variants)
    if not chosen:
        reasons = len(variants)
        return (
            "Nothing here can be used.",
            f"The build rejected {'its variant' if reasons == 1 else f'all {reasons} variants'}: "
            "the reasons are below.",
            "Build again with another target, another --precision or more samples.",
        )
    sentences = []
    for profile, (first, *others) in chosen.items():
        more = "".join(f" {other.role.capitalize()}: {other.as_text()}." for other in others)
        stage = ", first stage" if manifest.get("cascade") else ""
        sentences.append(f"On {profile}{stage}, use {first.as_text()}.{more}")
    return (*sentences, *_timed_on(chosen), _next(manifest, advised(variants), variants))


def advised(variants: Sequence[Variant]) -> list[Variant]:
    """Return the variant to use of each profile."""
    return [first.variant for first, *_ in choices(variants).values()]


def advice_lines(variants: Sequence[Variant]) -> list[str]:
    """Return the choices as a table of at most 80 columns if names are short: the variant to use of each
    profile first, with a bar for its speed."""
    rows, floats, chosen = [], {}, choices(variants)
    for group in chosen.values():
        times = [time for one in group if (time := p50_ms(one.variant)) is not None]
        for one in group:
            time_ms, task, (kept, low) = p50_ms(one.variant), _task(one.variant), _kept_text(one.variant)
            share = min(times) / time_ms if time_ms and one.time != "-" else 0.0
            speed = f"{one.speed:.1f}x " if one.speed else ""
            if task is not None:
                floats[task["metric"]] = f"{task['float']:.3f}"
            rows.append((
                one.role, one.variant.name, one.time, speed + "#" * round(BAR_COLUMNS * share) or "-",
                size(one.variant.evidence["size_bytes"]), f"{task['value']:.3f}" if task is not None else "-",
                f"{kept} ({low})" if low else kept,
            ))  # fmt: skip
    if not rows:
        return []
    columns = ("use", "variant", "time", "speed", "size", " or ".join(floats), "kept (min)")
    used = [column for column, name in enumerate(columns) if name]
    lines = table([columns[i] for i in used], [[row[i] for i in used] for row in rows])
    said = [f"{metric} of the float model: {figure}." for metric, figure in floats.items()]
    return [*lines, *(f"  {line}" for line in (*_timed_on(chosen), *said))]


def choices(variants: Sequence[Variant]) -> dict[str, list[Choice]]:
    """Choose variants of each profile, the one to use first: the fastest whose loss is within the limit at
    the lower end of its interval. If none is timed, the smallest one. A deferral goes before its parts, and
    a smaller model's variant is never chosen."""
    chosen: dict[str, list[Choice]] = {}
    for profile, group in _by_profile(variants).items():
        proved = [v for v in group if "not_proved" not in v.evidence.get("agreement", {})] or group
        first = _fastest(proved)
        accurate = _fastest([v for v in proved if _kept(v) == max(map(_kept, proved))])
        half = [v for v in proved if 1 - _kept(v) <= (1 - _kept(first)) / 2]
        roles = {"unproved": _fastest(group), "balanced": _fastest(half) if half else first}
        roles |= {"accurate": accurate, "fastest": first}
        whole = next((v for v in group if v.precision == FULL_PRECISION), None)
        role_of = {variant.name: role for role, variant in roles.items()}  # the last one, of several
        chosen[profile] = [
            Choice(role, roles[role], _speed(roles[role], whole))
            for role in ("fastest", "balanced", "accurate", "unproved")
            if role_of[roles[role].name] == role
        ]
    return chosen


def _fastest(group: Sequence[Variant]) -> Variant:
    times_ms = {v.name: time_ms for v in group if (time_ms := p50_ms(v)) is not None}
    return fastest_first(group, times_ms)[0]


def _kept(variant: Variant) -> float:
    """Return the share of the source model's answers that a variant keeps; 1 for one that computes in floats
    and has no score."""
    score = variant.evidence.get("agreement") or {}
    if score.get("value") is None or score["unit"]:
        generation = variant.evidence.get("generation") or {}
        exact = precision_of(variant.precision).is_float
        return float(generation["agreement"]) if generation.get("agreement") else 1.0 if exact else 0.0
    return float(score["value"])


def _task(variant: Variant) -> Mapping[str, Json] | None:
    """Return the score on labels beside the source model's, or None."""
    task = variant.evidence.get("task") or {}
    return task if task.get("value") is not None and "float" in task else None


def _kept_text(variant: Variant) -> tuple[str, str]:
    """Return how many of the source model's answers are kept, or another measure of that, and the lower end
    of the interval; "" without one."""
    if not variant.verified:
        return "not run", ""
    kept, generation = variant.evidence.get("agreement") or {}, variant.evidence.get("generation") or {}
    if kept.get("value") is not None and not kept["unit"]:
        return f"{100 * kept['value']:.1f} %", f"{100 * kept['low']:.1f}" if "low" in kept else ""
    if generation.get("agreement") is not None:
        return f"{100 * generation['agreement']:.1f} % of tokens", ""
    if variant.precision == FULL_PRECISION or _task(variant) is not None:
        return "as the source" if variant.precision == FULL_PRECISION else "-", ""
    errors = variant.evidence.get("accuracy", {}).values()
    snr_db = min((error["snr_db"] for error in errors), key=_worst, default=None)
    return "not scored" if snr_db is None else f"{snr_db:.0f} dB SNR", ""


def _worst(snr_db: float | None) -> float:
    return float("inf") if snr_db is None else snr_db


def _speed(variant: Variant, whole: Variant | None) -> float | None:
    """Return how many times as fast as the float variant it is, if the same machine timed both."""
    times = [p50_ms(variant), p50_ms(whole)] if whole is not None else [None]
    if whole is None or None in times or machine(variant) != machine(whole):
        return None
    return float(times[1] / times[0]) if times[0] and times[1] else None


def _timed_on(chosen: Mapping[str, Sequence[Choice]]) -> list[str]:
    timed = [one.variant for group in chosen.values() for one in group if p50_ms(one.variant) is not None]
    machines = dict.fromkeys(machine(variant) for variant in timed)
    return [f"Timed on {'; '.join(machines)}."] if machines else []


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


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
