"""Path to a smaller model: multiplications, accuracy and time of each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from edgekit.bundle.variant import Variant
from edgekit.system.formats.plain_text import duration, milliseconds
from edgekit.tensor_spec import Json


class ShrunkPath(NamedTuple):
    """The steps to one variant.

    Attributes:
        rows: The whole model first.
        trained: Whether one of the steps is a training.
    """

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    trained: bool


def shrunk_paths(variants: Sequence[Variant]) -> list[ShrunkPath]:
    """Return a table for each smaller model on each profile, up to its int8 variant if any, kept or rejected.

    Raises:
        LookupError, TypeError, ValueError: the evidence, which is open JSON, is not what a build writes.
    """
    longest: dict[tuple[str, float], Variant] = {}
    for variant in variants:
        steps = _steps(variant)
        key = variant.profile, variant.smaller_by
        if steps and (key not in longest or len(steps) > len(_steps(longest[key]))):
            longest[key] = variant
    return [_path(variant, variants) for variant in longest.values()]


def _steps(variant: Variant) -> Sequence[Json]:
    if variant.shrunk is None:
        return ()
    steps: Sequence[Json] = (variant.evidence.get("shrunk") or {}).get("path") or ()
    return steps


def _path(variant: Variant, variants: Sequence[Variant]) -> ShrunkPath:
    steps, left = _steps(variant), f"{100 * (1 - variant.smaller_by):.0f} %"
    peers = [v for v in variants if v.profile == variant.profile]
    whole = next((v for v in peers if v.shrunk is None), None)
    smaller = next((v for v in peers if v.smaller_by == variant.smaller_by and not _is_int8(v)), None)
    labelled = variant.evidence.get("task") if steps[-1].get("task") else None
    exact = "exact" if steps[0]["agreement"]["unit"] else "1.000"
    first = f"{labelled['float']:.3f}" if labelled else exact
    rows = [("the whole model", "100 %", first, _time(whole), _ratio(whole, whole), "-")]
    for step in steps:
        score = step["task"] if labelled else step["agreement"]
        ran = variant if step["step"].startswith("int8") else smaller
        trained = duration(step["seconds"]) if "seconds" in step else "-"
        rows.append((str(step["step"]), left, _figure(score), _time(ran), _ratio(ran, whole), trained))
    metric = steps[-1]["task"]["metric"] if labelled else steps[-1]["agreement"]["metric"]
    columns = ("step", "multiplications", str(metric), "p50 at build", "of the whole", "training")
    return ShrunkPath(variant.name, columns, tuple(rows), any("seconds" in step for step in steps))


def _is_int8(variant: Variant) -> bool:
    return "quantization" in variant.evidence


def _figure(score: Json) -> str:
    if score["value"] is None:
        return "-"
    return f"{score['value']:.1f} dB" if score["unit"] else f"{score['value']:.3f}"


def _time(variant: Variant | None) -> str:
    timing = variant.evidence.get("timing") if variant is not None else None
    return milliseconds(timing["p50_ms"]) if timing else "-"


def _ratio(variant: Variant | None, whole: Variant | None) -> str:
    """Return the ratio of the fastest runs, as everywhere."""
    timings = [v.evidence.get("timing") if v is not None else None for v in (variant, whole)]
    return f"{timings[0]['min_ms'] / timings[1]['min_ms']:.2f}" if timings[0] and timings[1] else "-"
