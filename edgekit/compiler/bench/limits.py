"""Limits of a benchmark for continuous integration: ``p95>+10%`` against a stored one, or ``p95>20ms``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from edgekit.errors import UsageError
from edgekit.system.formats.strict_json import JsonError, decode

METRICS = {
    "p50": ("p50_ms", "ms"),
    "p95": ("p95_ms", "ms"),
    "p99": ("p99_ms", "ms"),
    "load": ("load_ms", "ms"),
    "first": ("first_ms", "ms"),
    "cold": ("cold_ms", "ms"),
    "memory": ("rss_mb", "MB"),
}
"""What a limit may name -> the key of a result, and its unit."""
BASELINE_LIMIT_BYTES = 4 << 20
_LIMIT = re.compile(r"(?P<metric>[a-z0-9]+)\s*>\s*(?P<more>\+?)(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>%|ms|MB)")


class Limit(NamedTuple):
    """``metric`` must not be more than ``number``: percent above the baseline, or its own unit."""

    text: str
    metric: str
    number: float
    relative: bool


def parse_limit(text: str) -> Limit:
    """Parse a limit. Raises UsageError if it is not valid.

    >>> parse_limit("p95>+10%")
    Limit(text='p95>+10%', metric='p95', number=10.0, relative=True)
    """
    match = _LIMIT.fullmatch(text.strip())
    if match is None or match["metric"] not in METRICS:
        raise UsageError(
            f"--fail-if must be like 'p95>+10%' or 'p95>20ms', with one of {', '.join(METRICS)}; not {text!r}"
        )
    relative, unit = match["unit"] == "%", METRICS[match["metric"]][1]
    if not relative and match["unit"] != unit:
        raise UsageError(f"--fail-if {text!r}: {match['metric']} is in {unit}")
    return Limit(text.strip(), match["metric"], float(match["number"]), relative)


def read_baseline(path: Path) -> dict[str, dict[str, Any]]:
    """Read the results by variant from a file that ``edgekit bench --json`` wrote."""
    try:
        with path.open("rb") as file:
            content = decode(file.read(BASELINE_LIMIT_BYTES + 1), str(path), BASELINE_LIMIT_BYTES)
        results = content["results"]
        return {str(result["variant"]): dict(result) for result in results}
    except OSError as problem:
        raise UsageError(f"{path} can't be read: {problem.strerror or problem}") from None
    except (JsonError, KeyError, TypeError, ValueError) as problem:
        raise UsageError(
            f"{path} is not a baseline ({problem}); write one with edgekit bench BUNDLE --json > {path}"
        ) from None


def beyond(
    results: Sequence[dict[str, Any]], limits: Sequence[Limit], baseline: dict[str, dict[str, Any]] | None
) -> list[str]:
    """Return a line for each limit that a result exceeds.

    Raises:
        UsageError: a relative limit without a baseline, one that lacks the variant or the metric, or one that
            was measured on another processor or with other threads.
    """
    lines = []
    for result in results:
        for limit in limits:
            key, unit = METRICS[limit.metric]
            now = result.get(key)
            if now is None:
                raise UsageError(f"{limit.text}: {limit.metric} cannot be measured on this system")
            maximum = limit.number
            if limit.relative:
                maximum = _base(result, limit, key, baseline) * (1 + limit.number / 100)
            if now > maximum:
                lines.append(
                    f"{result['variant']}: {limit.text}: {now:.4g} {unit}, the limit is {maximum:.4g} {unit}"
                )
    return lines


def _base(
    result: dict[str, Any], limit: Limit, key: str, baseline: dict[str, dict[str, Any]] | None
) -> float:
    if baseline is None:
        raise UsageError(f"--fail-if {limit.text!r} needs --baseline FILE, or a limit in units (p95>20ms)")
    row = baseline.get(result["variant"])
    if row is None:
        raise UsageError(
            f"the baseline has no {result['variant']}; available: {', '.join(baseline) or 'nothing'}"
        )
    for setting in ("cpu", "threads"):
        if row.get(setting) != result[setting]:
            raise UsageError(
                f"the baseline of {result['variant']} is from another machine or setting: {setting} "
                f"{row.get(setting)}, here {result[setting]}; measure a new baseline here"
            )
    base = row.get(key)
    if isinstance(base, bool) or not isinstance(base, (int, float)) or base <= 0:
        raise UsageError(f"the baseline of {result['variant']} has no {limit.metric}")
    return float(base)
