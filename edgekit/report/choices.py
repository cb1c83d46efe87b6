"""What a reader decides by, for each variant to choose from: faster, smaller, accuracy kept, verified on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgekit.bundle import device_evidence
from edgekit.bundle.advice import Choice, choices, machine, p50_ms, timed_on_its_kind
from edgekit.bundle.report import lowest_snr, verified_on
from edgekit.bundle.variant import Variant
from edgekit.errors import printable
from edgekit.system.formats.plain_text import milliseconds, size
from edgekit.target.precisions import FULL_PRECISION

ROLES = {"accurate": "most accurate"}
"""Role -> its label, if they differ."""


@dataclass(frozen=True)
class Tile:
    """A figure in large type, what it is, and what it is made of."""

    title: str
    figure: str
    text: str


@dataclass(frozen=True)
class Offer:
    """A variant to choose.

    Attributes:
        label: Its profile and role.
        tiles: Four of them.
    """

    variant: str
    label: str
    tiles: tuple[Tile, ...]


def offers_of(manifest: Mapping[str, Any], variants: Sequence[Variant]) -> tuple[Offer, ...]:
    """Return the variants to choose from: of each profile the fastest within the limit, the balanced one and
    the most accurate one, as far as they differ. The profile whose variant is the fastest comes first."""
    chosen = sorted(choices(variants).values(), key=lambda group: _own_ms(group[0].variant))
    measured = dict(device_evidence.tables(manifest))
    window_s = _window_s(manifest)
    return tuple(_offer(choice, variants, measured, window_s) for group in chosen for choice in group)


def _window_s(manifest: Mapping[str, Any]) -> float:
    """Return the length of the sound that a run takes, in seconds; 0 if it takes none."""
    inputs = (manifest.get("card") or {}).get("inputs") or {}
    return next((i["window"] / i["rate"] for i in inputs.values() if i.get("kind") == "audio"), 0.0)


def _own_ms(variant: Variant) -> float:
    time_ms = p50_ms(variant)
    return float("inf") if time_ms is None or not timed_on_its_kind(variant) else time_ms


def _offer(
    choice: Choice, variants: Sequence[Variant], measured: Mapping[str, Any], window_s: float
) -> Offer:
    variant = choice.variant
    whole = next(
        (
            v
            for v in variants
            if v.profile == variant.profile and v.precision == FULL_PRECISION and v.shrunk is None
        ),
        None,
    )
    return Offer(
        variant.name,
        f"{variant.profile}: {ROLES.get(choice.role, choice.role)}",
        (
            _faster(choice, whole, window_s),
            _smaller(variant, whole),
            _kept(choice),
            _verified(variant, measured),
        ),
    )


def _faster(choice: Choice, whole: Variant | None, window_s: float) -> Tile:
    variant, time_ms = choice.variant, p50_ms(choice.variant)
    if time_ms is None or not timed_on_its_kind(variant):
        return Tile("faster", "not timed", f"measure it on {variant.profile}")
    run = f"run of {window_s:g} s of sound" if window_s else "run"
    text = f"{choice.time} a {'token' if 'generation' in variant.evidence else run} on {machine(variant)}"
    if variant is whole or not choice.speed:
        return Tile("time", choice.time, text.removeprefix(f"{choice.time} "))
    whole_ms = p50_ms(whole) if whole is not None else None
    beside = f", fp32 {milliseconds(whole_ms)}" if whole_ms else ""
    return Tile("faster than fp32", f"{choice.speed:.1f}x", text + beside)


def _smaller(variant: Variant, whole: Variant | None) -> Tile:
    size_bytes = variant.evidence["size_bytes"]
    if whole is None or variant is whole or not size_bytes:
        return Tile("size", size(size_bytes), "the variant's files")
    whole_bytes = whole.evidence["size_bytes"]
    if whole_bytes <= size_bytes:
        return Tile("size", size(size_bytes), f"fp32 has {size(whole_bytes)}")
    text = f"{size(size_bytes)} of {size(whole_bytes)}"
    return Tile("smaller than fp32", f"{whole_bytes / size_bytes:.1f}x", text)


def _kept(choice: Choice) -> Tile:
    variant, evidence = choice.variant, choice.variant.evidence
    score = evidence.get("agreement") or evidence.get("generation") or {}
    kept = score.get("value", score.get("agreement"))
    if kept is None or score.get("unit"):
        return Tile("accuracy", lowest_snr(variant), "SNR of its outputs against the source model's")
    parts = [f"at least {100 * score['low']:.1f} %"] if "low" in score else []
    if (task := evidence.get("task") or {}).get("value") is not None and "float" in task:
        parts.append(f"{task['metric']} {task['value']:.3f}, float model {task['float']:.3f}")
    what = f"of the float model's {'tokens' if 'generation' in evidence else 'answers'}"
    return Tile("accuracy kept", f"{100 * kept:.1f} %", "; ".join(parts) or what)


def _verified(variant: Variant, measured: Mapping[str, Any]) -> Tile:
    devices = [title for title, rows in measured.items() if any(row[0] == variant.name for row in rows)]
    if devices:
        count = f"on {len(devices)} device{'s' if len(devices) > 1 else ''}"
        return Tile("verified", count, printable(", ".join(devices)))
    if not variant.verified:
        return Tile("verified", "not run", printable(variant.reason or variant.status))
    return Tile("verified", "yes", printable(verified_on(variant).removeprefix("yes, ")))
