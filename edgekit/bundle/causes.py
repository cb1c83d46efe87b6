"""Text on why a variant's values lose accuracy, and what the repairs cost, from the build's evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from edgekit.bundle.variant import Variant
from edgekit.tensor_spec import Json

REACH = {
    "outlier range": "{narrow:.4g} holds 99 % of the values, and the largest is {wide:.4g}",
    "narrow channel": "channels reach from {narrow:.2g} to {wide:.4g} under one scale",
    "depthwise range": "channels reach from {narrow:.2g} to {wide:.4g} under one scale",
    "per-tensor weight": "output channels reach from {narrow:.2g} to {wide:.4g} under one scale",
    "mixed-scale concat": "one input reaches {narrow:.4g}, another {wide:.4g}, under one scale",
    "float16 headroom": "it reaches {narrow:.4g}; float16 ends at {wide:.5g}",
}


class CauseText(NamedTuple):
    """One cause in words.

    Attributes:
        layer: Layer that computes the value, by its name in the source model.
        reach: The magnitudes.
        plain: SNR of the value in plain int8; "-" for float16.
        left: SNR of the value as it is stored; "-" in float and for weights.
    """

    kind: str
    layer: str
    reach: str
    plain: str
    done: str
    left: str

    def __str__(self) -> str:
        before = "" if self.plain == "-" else f", {self.plain}"
        after = "" if self.left == "-" else f", {self.left}"
        return f"{self.kind}  {self.layer}: {self.reach}{before}; {self.done}{after}"


def cause_texts(variant: Variant, called: Callable[[str], str]) -> list[CauseText]:
    """Return the causes of a variant in words, the worst first.

    Args:
        variant: With evidence; it has no causes if an older build wrote it.

    Raises:
        AttributeError, LookupError, TypeError, ValueError: the evidence is not what a build writes.
    """
    causes = variant.evidence.get("causes")
    return [_text(row, called) for row in causes["found"]] if causes else []


def left_out(variant: Variant) -> str:
    """Return in words how many more causes there are than the bundle holds; "" for none."""
    more = (variant.evidence.get("causes") or {}).get("more") or {}
    return ", ".join(f"{int(count)} more of {kind}" for kind, count in more.items())


def price(variant: Variant, variants: Sequence[Variant]) -> str:
    """Describe the accuracy of plain int8, and the time that the repairs cost; "" if it is not known.

    Both are from the search: accuracy on the validation samples, time over the float parent's.

    Args:
        variants: Variants of the bundle: the first of its profile has the search.
    """
    quantization = variant.evidence.get("quantization")
    searches = (v.evidence.get("search") for v in variants if v.profile == variant.profile)
    search = next((entry for entry in searches if entry), None)
    causes = variant.evidence.get("causes")
    if not quantization or not search or not search.get("plain") or not causes or not causes["found"]:
        return ""
    plain = search["plain"]
    trials = [t for t in search["tried"] if t["choice"] == quantization.get("choice") and t.get("agreement")]
    if not trials:
        return ""
    best = min(trials, key=lambda tried: bool(tried["lost"]))
    text = f"plain int8 has {_figures(plain)}; {variant.name} {_figures(best)}"
    if plain["ratio"] and best["ratio"]:
        cost = float(best["ratio"]) / float(plain["ratio"]) - 1
        change = f"{abs(cost):.0%} {'more' if cost > 0 else 'less'} time than plain int8"
        text += f": {change if abs(cost) >= 0.005 else 'the time of plain int8'}"
    return text


def _figures(candidate: Mapping[str, Json]) -> str:
    score = candidate["agreement"]
    value = score["value"]
    unit = f" {score['unit']}" if score["unit"] else ""
    figure = "not finite" if value is None else f"{value:.1f}{unit}" if unit else f"{value:.3f}"
    time = f" at {candidate['ratio']:.2f}x the time of fp32" if candidate["ratio"] else ""
    return f"{score['metric']} {figure}{time}"


def _text(row: Mapping[str, Json], called: Callable[[str], str]) -> CauseText:
    reach = REACH[row["kind"]].format(narrow=float(row["narrow"]), wide=float(row["wide"]))
    return CauseText(
        str(row["kind"]),
        called(str(row["value"])),
        reach,
        _decibels(row["plain_db"]),
        str(row["done"]),
        _decibels(row["left_db"]),
    )


def _decibels(value: Json) -> str:
    return "-" if value is None else f"SNR {float(value):.1f} dB"
