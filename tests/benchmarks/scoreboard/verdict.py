"""Verdicts of the scoreboard: whether EdgeKit's int8 is ahead of, on the front with, or behind other tools.

A is faster than B if its time is below B's by more than the margin: TIME_MARGIN, or what two processes of the
same artifact differed by in that cell if that is more. A is more accurate than B if its metric is higher by
more than METRIC_MARGIN; within that, if its SNR is higher by more than SNR_MARGIN_DB.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.benchmarks.scoreboard.makers import OURS

Cell = dict[str, Any]
TIMES = {1: "cpu_ms_1", 2: "p50_ms_2"}
"""Field of the time that a verdict is made by: CPU time on one thread, the clock on two."""
TIME_MARGIN = 0.03
METRIC_MARGIN = 0.01
SNR_MARGIN_DB = 0.5
EXACT_DB = 90.0
"""Every SNR above this is equal: rounding of float32."""

AHEAD, FRONT, OFF, BEHIND, NONE = "ahead", "front", "off", "behind", "none"
MEANINGS = {
    AHEAD: "ahead in both: each quantized artifact of another tool is slower and less accurate than one of "
    "EdgeKit's",
    FRONT: "on the front: no other artifact is as fast and more accurate, or as accurate and faster",
    OFF: "off the front: another artifact is better in one, and equal within the margins in the other",
    BEHIND: "behind in both: another artifact is faster and more accurate",
    NONE: "no int8 of EdgeKit",
}


class Point(NamedTuple):
    """Measured artifact.

    Attributes:
        entry: Its name.
        ms: Time of a run, milliseconds.
        metric: Metric of the task, 0 to 1, of the predictions against the float model's; 0 if there is none.
        snr_db: SNR of the worst output against the float model.
    """

    entry: str
    ms: float
    metric: float
    snr_db: float


def faster(a: Point, b: Point, margin: float = TIME_MARGIN) -> bool:
    """Return whether A is faster than B by more than the margin.

    >>> [faster(Point("a", ms, 1, 20), Point("b", 10, 1, 20)) for ms in (9.6, 9.8)]
    [True, False]
    """
    return a.ms < b.ms * (1 - margin)


def more_accurate(a: Point, b: Point) -> bool:
    """Return whether A is more accurate than B by more than the margins.

    >>> more_accurate(Point("a", 1, 0.95, 10), Point("b", 1, 0.90, 30))
    True
    >>> more_accurate(Point("a", 1, 1.0, 30), Point("b", 1, 0.995, 20))
    True
    """
    if abs(a.metric - b.metric) > METRIC_MARGIN:
        return a.metric > b.metric
    return min(a.snr_db, EXACT_DB) > min(b.snr_db, EXACT_DB) + SNR_MARGIN_DB


def beats(a: Point, b: Point, margin: float = TIME_MARGIN) -> bool:
    """Return whether A is faster and more accurate than B."""
    return faster(a, b, margin) and more_accurate(a, b)


def dominates(a: Point, b: Point, margin: float = TIME_MARGIN) -> bool:
    """Return whether A is better than B in one and not worse in the other."""
    if faster(b, a, margin) or more_accurate(b, a):
        return False
    return faster(a, b, margin) or more_accurate(a, b)


def judge(
    own: Sequence[Point], quantized: Sequence[Point], floats: Sequence[Point], margin: float = TIME_MARGIN
) -> tuple[str, list[str]]:
    """Return the verdict on a cell, and the entries of other tools that are the reason for OFF and BEHIND.

    Args:
        own: EdgeKit's quantized artifacts.
        quantized: Those of other tools.
        floats: Float artifacts of other tools: an int8 that is slower than those is behind.
        margin: Relative difference of times that counts as none.
    """
    if not own:
        return NONE, []
    others = [*quantized, *floats]
    reasons = {point.entry: [o.entry for o in others if dominates(o, point, margin)] for point in own}
    if all(reasons.values()):
        beaten = {point.entry: [o.entry for o in others if beats(o, point, margin)] for point in own}
        if all(beaten.values()):
            return BEHIND, sorted({entry for entries in beaten.values() for entry in entries})
        return OFF, sorted({entry for entries in reasons.values() for entry in entries})
    if quantized and all(any(beats(point, other, margin) for point in own) for other in quantized):
        return AHEAD, []
    return FRONT, []


def front(points: Sequence[Point]) -> list[Point]:
    """Return the points that no other point dominates, the fastest first.

    >>> [point.entry for point in front([Point("a", 1, 0, 20), Point("b", 2, 0, 10), Point("c", 3, 0, 30)])]
    ['a', 'c']
    """
    kept = [point for point in points if not any(dominates(other, point, 0.0) for other in points)]
    return sorted(kept, key=lambda point: point.ms)


def number(value: float | str | None) -> float:
    """Return a number of a result, which has infinities as text; 0 for None."""
    return 0.0 if value is None else float(value)


def points(cell: Cell, threads: int = 1) -> list[tuple[dict[str, Any], Point]]:
    """Return the entries of a cell that ran, each with its point."""
    field = TIMES[threads]
    return [
        (
            entry,
            Point(entry["entry"], entry[field], number(entry.get("metric")), number(entry.get("snr_db"))),
        )
        for entry in cell["entries"]
        if not entry["failure"] and field in entry
    ]


def margin_of(cell: Cell, threads: int = 1) -> float:
    """Return the relative difference of times that counts as none in a cell."""
    return max(TIME_MARGIN, float(cell.get("twin", {}).get(str(threads), 0.0)))


def verdict_of(cell: Cell, threads: int = 1, forced: bool = False) -> tuple[str, list[str]]:
    """Return the verdict on a cell, and the other tools' entries that are its reason.

    Args:
        cell: Result of the cell.
        threads: 1 or 2.
        forced: Whether to judge each int8 that was made. Otherwise those that a build ships are judged: fp32
            where it rejects all int8.
    """
    every = points(cell, threads)
    own = [(entry, point) for entry, point in every if entry["maker"] == OURS]
    quantized = [(entry, point) for entry, point in own if entry["precision"] != "fp32"]
    shipped = [pair for pair in quantized if not pair[0]["note"]] or [
        pair for pair in own if pair not in quantized
    ]
    others = [(entry, point) for entry, point in every if entry["maker"] != OURS]
    return judge(
        [point for _, point in (quantized if forced else shipped)],
        [point for entry, point in others if entry["precision"] != "fp32"],
        [point for entry, point in others if entry["precision"] == "fp32"],
        margin_of(cell, threads),
    )


def ships_float(cell: Cell) -> bool:
    """Return whether a build rejects each int8 of EdgeKit that was made, so that fp32 ships."""
    notes = [
        entry["note"] for entry, _ in points(cell) if entry["maker"] == OURS and entry["precision"] != "fp32"
    ]
    return all(notes)
