"""An old and a new bundle of one model, variant by variant: what is worse, beyond what is noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypedDict

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.variant import Variant
from edgekit.compiler.bench.compare import Side, compare, is_installed, statement
from edgekit.compiler.evaluate.relative_time import FASTER
from edgekit.errors import EdgeKitError, reason_of
from edgekit.system.formats.plain_text import size
from edgekit.system.timings import digest_of, run_digest

SCORE_TOLERANCE = 0.005
"""A share (0 to 1), e.g. top-1, may be so much lower: another order of sums moves single answers."""
SNR_TOLERANCE_DB = 1.0
EXACT_ENOUGH_DB = 60.0
"""SNR above which a decrease is not a loss: an error of 1/1000 of the norm, far beyond every limit."""
SLOWER = 1 / FASTER
"""Accepted time over the old one's: the upper end of its interval must be below."""
LONGER = 3
"""Factor of the measuring time if the interval of a first measurement is too wide."""
SIZE_TOLERANCE = 1.02
"""An engine's format may grow by its header."""


class Change(TypedDict):
    """A variant before and after.

    Attributes:
        same: Whether its files and options are the same bytes, so that nothing had to be measured.
        score: Deciding score before and after, or None.
        metric: Name of the score's metric, or "".
        latency: Result of ``edgekit bench --against``, or the reason why it was not timed, or "".
        ratio: Time of the new one over the old one's, or None.
        worse: Reasons why the new variant is worse.
        unproved: Reason that it may be slower than is accepted, although that is not sure; "" if it is not.
    """

    variant: str
    same: bool
    status: tuple[str, str]
    metric: str
    score: tuple[float | None, float | None] | None
    size_bytes: tuple[int, int]
    latency: str
    ratio: float | None
    worse: list[str]
    unproved: str


def compare_variants(old: Bundle, new: Bundle, seconds: float) -> list[Change]:
    """Compare every variant of either bundle, in the order of the old one.

    Args:
        old: Before.
        new: After, built on the same samples.
        seconds: For timing each pair.
    """
    before = {variant.name: variant for variant in old.variants}
    after = {variant.name: variant for variant in new.variants}
    return [
        _changed(old, new, before.get(name), after.get(name), seconds)
        for name in dict.fromkeys([*before, *after])
    ]


def other_tools(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Package -> versions before and after, of two manifests, if they differ."""
    before = {"edgekit-sdk": old["edgekit"], **old["tools"]}
    after = {"edgekit-sdk": new["edgekit"], **new["tools"]}
    names = sorted({*before, *after})
    pairs = {name: (str(before.get(name, "")), str(after.get(name, ""))) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _changed(
    old: Bundle, new: Bundle, before: Variant | None, after: Variant | None, seconds: float
) -> Change:
    name = (before or after).name  # type: ignore[union-attr]
    change: Change = {
        "variant": name, "same": False, "metric": "", "score": None, "latency": "", "ratio": None,
        "status": (before.status if before else "", after.status if after else ""),
        "size_bytes": (_bytes(old, before), _bytes(new, after)), "worse": [], "unproved": "",
    }  # fmt: skip
    if before is None or not before.usable:
        change["same"] = before is not None and after is not None and before.outcome == after.outcome
        return change
    if after is None or not after.usable:
        change["worse"].append(f"it was removed: {after.reason if after else 'it was not built'}")
        return change
    change["same"] = _digest(old, before) == _digest(new, after)
    change["metric"], one, two = _scores(before, after)
    if change["metric"]:
        change["score"] = (one, two)
    if before.verified and not after.verified:
        change["worse"].append(f"it was verified, and now is {after.status}")
    if change["metric"] and (reason := _lower(change["metric"], one, two)):
        change["worse"].append(reason)
    if change["size_bytes"][1] > SIZE_TOLERANCE * change["size_bytes"][0]:
        change["worse"].append(f"{size(change['size_bytes'][1])} instead of {size(change['size_bytes'][0])}")
    if not change["same"]:
        _time(change, old, new, before, seconds)
    return change


def _time(change: Change, old: Bundle, new: Bundle, variant: Variant, seconds: float) -> None:
    """Time both here, and say which is faster if that is sure."""
    if not is_installed(variant.target):
        change["latency"] = f"not timed: {variant.target} is not installed here"
        return
    sides = Side(new, variant.name, "the new one"), Side(old, variant.name, "the old one")
    try:
        timed = compare(*sides, seconds=seconds)
        if timed["high"] > SLOWER >= timed["ratio"]:
            timed = compare(*sides, seconds=LONGER * seconds)
    except EdgeKitError as problem:  # it does not run here, or not any more
        change["latency"] = f"not timed: {reason_of(problem)}"
        return
    change["latency"], change["ratio"] = statement(timed), timed["ratio"]
    if timed["differs"] and timed["ratio"] > SLOWER:
        change["worse"].append(statement(timed))
    elif timed["high"] > SLOWER:
        longer, confidence = 100 * (timed["high"] - 1), 100 * timed["confidence"]
        change["unproved"] = (
            f"with {confidence:g} % confidence its time is at most {longer:.1f} % longer, and "
            f"{100 * (SLOWER - 1):.0f} % is accepted"
        )


def _scores(before: Variant, after: Variant) -> tuple[str, float | None, float | None]:
    """Return the metric and the two values of the first figure that both variants have: the score on labels,
    the fidelity, or the worst output's SNR. A value of None means exact outputs."""
    for key in ("task", "agreement"):
        one, two = before.evidence.get(key), after.evidence.get(key)
        if one and two and one["metric"] == two["metric"]:
            return f"{one['metric']}{' dB' if one['unit'] else ''}", one["value"], two["value"]
    if before.evidence.get("accuracy") and after.evidence.get("accuracy"):
        return "SNR dB", _worst(before), _worst(after)
    return "", None, None


def _worst(variant: Variant) -> float | None:
    figures = [error["snr_db"] for error in variant.evidence["accuracy"].values()]
    return min((figure for figure in figures if figure is not None), default=None)


def _lower(metric: str, before: float | None, after: float | None) -> str:
    """Return why a score is worse, or "" if it is not; a score of None stands for an exact result."""
    one, two = (math.inf if value is None else value for value in (before, after))
    decibels = metric.endswith(" dB")
    tolerance = SNR_TOLERANCE_DB if decibels else SCORE_TOLERANCE
    if two >= one - tolerance or (decibels and two >= EXACT_ENOUGH_DB):
        return ""
    return f"{metric} {_figure(two)} instead of {_figure(one)}"


def _figure(value: float) -> str:
    return "exact" if value == math.inf else f"{value:.4g}"


def _digest(bundle: Bundle, variant: Variant) -> str:
    sha256 = {entry["name"]: entry["sha256"] for entry in bundle.manifest["entries"]}
    return run_digest(digest_of({f: sha256[entry] for f, entry in variant.files.items()}), variant.options)


def _bytes(bundle: Bundle, variant: Variant | None) -> int:
    return sum(bundle.size_bytes(entry) for entry in variant.files.values()) if variant else 0
