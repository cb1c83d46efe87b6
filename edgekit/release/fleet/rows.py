"""Rows that devices reported, from the files in which a backend stores them.

A row has one of two forms: a snapshot with a key ``report`` (``DeviceReport``), or the body of an OTLP
request (``DeviceReport.otlp``). Rows are untrusted: malformed ones are counted with the reason, and
skipped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.errors import UsageError, printable
from edgekit.processing.latency_contract import END_TO_END
from edgekit.runtime.metrics import otlp
from edgekit.runtime.metrics.device_report import FORMAT, NAME
from edgekit.runtime.metrics.histogram import MOST, SCALE
from edgekit.system.formats import strict_json

ROW_LIMIT_BYTES = 1 << 20
DAY_S = 86_400.0
EARLIEST = 1_577_836_800.0
"""2020-01-01, Unix seconds: EdgeKit did not exist. Clocks without a battery start at 1970 or 2000."""
SUFFIXES = (".json", ".jsonl", ".ndjson")
TEXT_LIMIT_CHARS = 200


class RowError(ValueError):
    """Why a row is not used."""


@dataclass(frozen=True)
class DeviceRow:
    """Cumulative counts that a process of a device has reported.

    Attributes:
        bundle: First 12 digits of the bundle's digest.
        since: Start of the counts in Unix seconds; it identifies the process. It is before EARLIEST if the
            process started before the device's clock was set.
        until: Time of sending in Unix seconds.
        answers: Number of requests. ``failed`` of them failed; ``fallback`` were answered by another variant
            than the best.
        times: Number of measured end-to-end request times, and their sum in seconds.
        buckets: Histogram of these times: index of the first bucket, and counts (``metrics/histogram.py``).
        scores: Number of the app's own scores, and their sum.
    """

    device: str
    device_class: str
    channel: str
    model: str
    version: str
    bundle: str
    variant: str
    engine: str
    since: float
    until: float
    answers: int
    failed: int
    fallback: int
    times: tuple[int, float]
    buckets: tuple[int, tuple[int, ...]]
    scores: tuple[int, float]
    given_up: Mapping[str, str]


@dataclass
class Unused:
    """Malformed rows that were skipped: their number, and the first one's place and reason."""

    count: int = 0
    first: str = ""


def read_rows(paths: Sequence[Path], unused: Unused, now: float) -> Iterator[DeviceRow]:
    """Yield the rows of files, and of all files below folders, in the order of their names.

    Args:
        paths: ``.jsonl`` and ``.ndjson``: a row a line; ``.json``: one row, as a FolderSink writes it.
        now: Unix seconds: a row that was sent more than a day later, or before EARLIEST, is not used.

    Raises:
        UsageError: a path does not exist or is not such a file, or a folder has none.
        OSError: a file can't be read.
    """
    for path in _files(paths):
        with path.open("rb") as file:
            if path.suffix == ".json":
                lines: Iterator[bytes] = iter([file.read(ROW_LIMIT_BYTES + 1)])
            else:
                lines = iter(lambda: file.readline(ROW_LIMIT_BYTES + 2), b"")
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    row = decoded(line)
                    if not EARLIEST <= row.until <= now + DAY_S:
                        raise RowError("its device's clock is wrong: it was sent before 2020 or after today")
                    yield row
                except ValueError as problem:  # of JSON, or a RowError
                    unused.count += 1
                    unused.first = unused.first or f"{printable(str(path))}:{number}: {problem}"


def decoded(line: bytes) -> DeviceRow:
    row = strict_json.decode(line, "row", ROW_LIMIT_BYTES)
    if not isinstance(row, dict):
        raise RowError("it is not an object")
    try:
        return _row(_snapshot_of(row) if "resourceMetrics" in row else row)
    except (KeyError, TypeError, IndexError, AttributeError, OverflowError) as problem:
        raise RowError(f"it is not a device's row: {type(problem).__name__}: {problem}") from None


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
            if not files:
                raise UsageError(f"{path}: no {', '.join(SUFFIXES)} files in this folder")
            yield from files
        elif not path.exists():
            raise UsageError(f"{path}: file not found")
        elif path.suffix not in SUFFIXES:
            raise UsageError(f"{path}: a file of rows ends in {', '.join(SUFFIXES)}")
        else:
            yield path


def _snapshot_of(document: dict[str, Any]) -> dict[str, Any]:
    resource = document["resourceMetrics"][0]
    about = _attributes(resource["resource"])
    metrics = {metric["name"]: metric for metric in resource["scopeMetrics"][0]["metrics"]}

    def points(name: str, kind: str = "sum") -> list[dict[str, Any]]:
        return list(metrics[name][kind]["dataPoints"]) if name in metrics else []

    info = points(otlp.MODEL, "gauge")[0]
    stages = [
        {
            "stage": END_TO_END,
            "count": int(point["count"]),
            "sum": point["sum"],
            "scale": point["scale"],
            "offset": point["positive"]["offset"],
            "bucket_counts": [int(count) for count in point["positive"]["bucketCounts"]],
        }
        for point in points(otlp.INFERENCE, "exponentialHistogram")
    ]
    scores = {
        "count": sum(int(point["asInt"]) for point in points(otlp.SCORES)),
        "sum": sum(point["asDouble"] for point in points(otlp.SCORE_SUM)),
    }
    return {
        **_attributes(info),
        "since": int(info["startTimeUnixNano"]) / 1e9,
        "until": int(info["timeUnixNano"]) / 1e9,
        "outcomes": {_attributes(point)["outcome"]: int(point["asInt"]) for point in points(otlp.INFERENCES)},
        "stages": stages,
        "report": {
            "format": FORMAT,
            **{name: about.get(key, "") for key, name in otlp.FLEET.items()},
            "scores": scores,
            "given_up": [_attributes(point) for point in points(otlp.GIVEN_UP, "gauge")],
        },
    }


def _attributes(holder: dict[str, Any]) -> dict[str, str]:
    return {entry["key"]: entry["value"]["stringValue"] for entry in holder["attributes"]}


def _row(snapshot: dict[str, Any]) -> DeviceRow:
    report = snapshot["report"]
    if report["format"] != FORMAT:
        found = printable(str(report["format"]))[:20]
        raise RowError(f"its format is {found}; the supported one is {FORMAT}")
    scores, given_up = report["scores"], report["given_up"]
    for field in ("device", "class", "channel"):
        if NAME.fullmatch(report[field]) is None and (report[field] or field != "channel"):
            raise RowError(f"its {field} {printable(report[field])[:80]!r} is not a name")
    words = {key: _text(snapshot[key]) for key in ("model", "version", "bundle", "variant", "engine")}
    since, until = _number(snapshot["since"]), _number(snapshot["until"])
    if since > until:
        raise RowError("it was sent before its counts began")
    counts = {key: _count(snapshot["outcomes"].get(key, 0)) for key in ("ok", "fallback", "failed")}
    stages = [entry for entry in snapshot["stages"] if entry["stage"] == END_TO_END]
    count, seconds = sum(_count(e["count"]) for e in stages), sum(_number(e["sum"]) for e in stages)
    if seconds > count * MOST:
        raise RowError("the sum of its times is too large for their number")
    score_count, score_sum = _count(scores["count"]), _number(scores["sum"])
    if score_sum > score_count:
        raise RowError("its scores are over 1")
    return DeviceRow(
        report["device"],
        report["class"],
        report["channel"],
        **words,
        since=since,
        until=until,
        answers=sum(counts.values()),
        failed=counts["failed"],
        fallback=counts["fallback"],
        times=(count, seconds),
        buckets=_buckets(stages),
        scores=(score_count, score_sum),
        given_up={_text(entry["bundle"]): _text(entry["reason"]) for entry in given_up},
    )


def _buckets(stages: Sequence[Mapping[str, Any]]) -> tuple[int, tuple[int, ...]]:
    """Add up the buckets of all engines. Return the first bucket's index, and the counts."""
    counts: dict[int, int] = {}
    for entry in stages:
        offset, values = entry["offset"], entry["bucket_counts"]
        if entry["scale"] != SCALE or type(offset) is not int or abs(offset) > 1000 or len(values) > 1000:
            raise RowError("its buckets are not EdgeKit's")
        for index, count in enumerate(values, offset):
            counts[index] = counts.get(index, 0) + _count(count)
    if not counts:
        return 0, ()
    first, last = min(counts), max(counts)
    return first, tuple(counts.get(index, 0) for index in range(first, last + 1))


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > TEXT_LIMIT_CHARS:
        raise RowError("a name or reason in it is not text, or too long")
    return printable(value)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 53:
        raise RowError("a count in it is not a whole number from 0")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not (math.isfinite(value) and value >= 0):
        raise RowError("a number in it is invalid or below 0")
    return float(value)
