"""Comparison of two bundles by variant and by source layer: what got slower and what got less accurate.

Both are measured here, one after the other, so a layer counts only if it changed by more than other load
changes it. ``edgekit bench`` reports whether a variant as a whole is slower, with significance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from edgekit.bundle.bundle import Bundle
from edgekit.compiler.explain.explain import Explanation, explain
from edgekit.errors import UsageError

LAYER_SHARE = 0.01
"""A layer has changed if by more than this share of a run,"""
LAYER_CHANGE = 0.1
"""and by more than this share of its own time."""
WORSE_DB = 1.0
"""A layer's values are worse if their SQNR is lower by more than this."""


class LayerChange(TypedDict):
    """A layer's time: before and now, in ms; 0 if it is not there."""

    layer: str
    ms: tuple[float, float]


class LayerNoise(TypedDict):
    """The SQNR of a layer's value: before and now, in dB; None for exact."""

    layer: str
    snr_db: tuple[float | None, float | None]


class VariantChange(TypedDict):
    """A variant in the other bundle and in this one."""

    variant: str
    only_in: str
    """The bundle that has it, or has it with files; "" if both have. Then the rest is empty."""
    run_ms: tuple[float | None, float | None]
    no_times: str
    slower: list[LayerChange]
    """The largest change first, as in all of these lists."""
    faster: list[LayerChange]
    worse: list[LayerNoise]
    snr: tuple[str, str]
    size_bytes: tuple[int, int]
    notes: list[str]
    """What changed in how it was built."""


def explain_diff(
    base: Bundle, bundle: Bundle, name: str | None = None, *, variant: str | None = None, threads: int = 1
) -> list[VariantChange]:
    """Compare the variants with the same name.

    Args:
        name: A target, profile or variant; None for all.
        variant: A variant, also if a profile has the same name; None for all.

    Raises:
        UsageError: no variant of ``bundle`` is in ``base``.
        BundleError: as for ``explain``.
    """
    now = {result["variant"]: result for result in explain(bundle, name, variant=variant, threads=threads)}
    base_names = [v.name for v in base.variants if v.files]
    both = [label for label in now if label in base_names]
    if not both:
        raise UsageError(
            f"{bundle.name} and {base.name} have no variant in common: they have {', '.join(now)} "
            f"and {', '.join(base_names)}"
        )
    before = {label: explain(base, variant=label, threads=threads)[0] for label in both}
    changes = [
        _change(before[label], now[label], _size(base, label), _size(bundle, label))
        if label in before
        else _in_one_bundle(label, bundle.name)
        for label in now
    ]
    if name is None and variant is None:
        changes += [_in_one_bundle(label, base.name) for label in base_names if label not in now]
    return changes


def _size(bundle: Bundle, variant: str) -> int:
    files = next(v.files for v in bundle.variants if v.name == variant)
    return sum(bundle.size_bytes(entry) for entry in files.values())


def _in_one_bundle(variant: str, bundle: str) -> VariantChange:
    return {
        "variant": variant,
        "only_in": bundle,
        "run_ms": (None, None),
        "no_times": "",
        "slower": [],
        "faster": [],
        "worse": [],
        "snr": ("", ""),
        "size_bytes": (0, 0),
        "notes": [],
    }


def _change(before: Explanation, now: Explanation, size_before: int, size_now: int) -> VariantChange:
    layers = _layer_changes(before, now)
    return {
        "variant": now["variant"],
        "only_in": "",
        "run_ms": (before["run_ms"], now["run_ms"]),
        "no_times": before["no_times"] or now["no_times"],
        "slower": [layer for layer in layers if layer["ms"][1] > layer["ms"][0]],
        "faster": [layer for layer in layers if layer["ms"][1] < layer["ms"][0]],
        "worse": _worse(before, now),
        "snr": (before["snr"], now["snr"]),
        "size_bytes": (size_before, size_now),
        "notes": [f"resolved: {note}" for note in before["notes"] if note not in now["notes"]]
        + [f"new: {note}" for note in now["notes"] if note not in before["notes"]],
    }


def _layer_changes(before: Explanation, now: Explanation) -> list[LayerChange]:
    if not before["nodes"] or not now["nodes"]:
        return []
    first, then = _by_layer(before), _by_layer(now)
    changes = [(layer, first.get(layer, 0.0), then.get(layer, 0.0)) for layer in {**first, **then}]
    threshold_ms = LAYER_SHARE * (before["run_ms"] or 0.0)
    changed = [c for c in changes if abs(c[2] - c[1]) > max(threshold_ms, LAYER_CHANGE * max(c[1], c[2]))]
    changed.sort(key=lambda change: -abs(change[2] - change[1]))
    return [{"layer": layer, "ms": (was, is_now)} for layer, was, is_now in changed]


def _by_layer(explanation: Explanation) -> dict[str, float]:
    """Return the time in ms by source node, or by the engine's node if the source is not recorded."""
    spent: dict[str, float] = {}
    for node in explanation["nodes"]:
        layer = node["source"] or node["node"]
        spent[layer] = spent.get(layer, 0.0) + node["ms"]
    return spent


def _worse(before: Explanation, now: Explanation) -> list[LayerNoise]:
    was = {value["value"]: value["snr_db"] for value in before["values"] if value["finite"]}
    losses: list[tuple[float, LayerNoise]] = []
    for value in now["values"]:
        if not value["finite"] or value["snr_db"] is None or value["value"] not in was:
            continue
        first = was[value["value"]]
        lost = float("inf") if first is None else first - value["snr_db"]
        if lost > WORSE_DB:
            layer = value["source"] or value["node"]
            losses.append((lost, {"layer": layer, "snr_db": (first, value["snr_db"])}))
    return [noise for _, noise in _first_of_layer(sorted(losses, key=lambda row: -row[0]))]


def _first_of_layer(rows: Sequence[tuple[float, LayerNoise]]) -> list[tuple[float, LayerNoise]]:
    first_by_layer: dict[str, tuple[float, LayerNoise]] = {}
    for row in rows:
        first_by_layer.setdefault(row[1]["layer"], row)
    return list(first_by_layer.values())
