"""Metrics for OpenTelemetry collectors: OTLP over HTTP, in its JSON form, without dependencies.

    content = body(metrics.snapshot(), {"service.name": "gate-camera", "device.id": "7"})
    outbox = Outbox("metrics", HttpSink("http://collector:4318/v1/metrics", content_type=JSON))
    outbox.put(content, kind="metric")          # exporter.py does so every minute

OpenTelemetry's SDK would keep a second copy of the histograms, and add 54 ms and 10 MB to the start; this
module is all that is needed to export them (opentelemetry-proto: metrics/v1/metrics.proto, and OTLP's mapping
of protobuf to JSON, 64-bit integers as strings). All counts are cumulative, so a lost or repeated row loses
at most its minute.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

from edgekit._version import __version__
from edgekit.processing.latency_contract import END_TO_END
from edgekit.runtime.metrics.metrics import DROPPED
from edgekit.system.formats import strict_json
from edgekit.tensor_spec import Json

JSON = "application/json"
CUMULATIVE = 2
"""AGGREGATION_TEMPORALITY_CUMULATIVE"""
INFERENCE, STAGE = "edgekit.inference.duration", "edgekit.stage.duration"
INFERENCES, FALLBACKS, MODEL = "edgekit.inferences", "edgekit.fallbacks", "edgekit.model.info"
SCORES, SCORE_SUM, GIVEN_UP = "edgekit.scores", "edgekit.scores.sum", "edgekit.bundles.given_up"
FLEET = {"device.id": "device", "edgekit.device.class": "class", "edgekit.channel": "channel"}
"""Resource attribute -> the key of a device's report (``device_report.py``)."""


def body(snapshot: Mapping[str, Any], resource: Mapping[str, str] | None = None) -> bytes:
    """Return a snapshot as the body of a POST to ``/v1/metrics``.

    Args:
        snapshot: Result of ``Metrics.snapshot``.
        resource: Resource attributes, e.g. ``service.name`` and ``device.id``; by default only
            ``service.name`` and ``host.arch`` are sent.
    """
    scope = {"name": "edgekit", "version": __version__}
    scoped = {"scope": scope, "metrics": _metrics(snapshot)}
    return strict_json.encode(
        {"resourceMetrics": [{"resource": resource_of(resource), "scopeMetrics": [scoped]}]}
    )


def resource_of(attributes: Mapping[str, str] | None) -> dict[str, Json]:
    """Return a resource with these attributes, ``service.name`` and ``host.arch``."""
    return {
        "attributes": attributes_of({"service.name": "edgekit", "host.arch": _arch(), **(attributes or {})})
    }


def _metrics(snapshot: Mapping[str, Any]) -> list[Json]:
    times = {"startTimeUnixNano": _nano(snapshot["since"]), "timeUnixNano": _nano(snapshot["until"])}
    model = {"model": snapshot["model"], "version": snapshot["version"]}

    def points(rows: list[tuple[dict[str, str], int]]) -> list[Json]:
        return [
            {"attributes": attributes_of({**model, **labels}), **times, "asInt": str(n)} for labels, n in rows
        ]

    histograms: dict[str, list[Json]] = {INFERENCE: [], STAGE: []}
    for entry in snapshot["stages"]:
        labels = {"engine": entry["engine"], "path": "local"}
        whole = entry["stage"] == END_TO_END
        attributes = attributes_of(
            {**model, **labels} if whole else {**model, **labels, "stage": entry["stage"]}
        )
        point = {"attributes": attributes, **times, **_histogram(entry)}
        histograms[INFERENCE if whole else STAGE].append(point)
    metrics: list[Json] = [
        {
            "name": name,
            "unit": "s",
            "exponentialHistogram": {"aggregationTemporality": CUMULATIVE, "dataPoints": data_points},
        }
        for name, data_points in histograms.items()
        if data_points
    ]
    outcomes = [({"outcome": outcome}, count) for outcome, count in snapshot["outcomes"].items()]
    fallbacks = [
        ({key: fallback[key] for key in ("from", "to", "reason")}, fallback["count"])
        for fallback in snapshot["fallbacks"]
    ]
    for name, unit, rows in ((INFERENCES, "{inference}", outcomes), (FALLBACKS, "{change}", fallbacks)):
        if rows:
            counted = {"aggregationTemporality": CUMULATIVE, "isMonotonic": True, "dataPoints": points(rows)}
            metrics.append({"name": name, "unit": unit, "sum": counted})
    metrics += _outbox(snapshot.get("outbox"), times)
    metrics += _report(snapshot.get("report"), times)
    runs = {key: str(snapshot[key]) for key in ("bundle", "variant", "engine", "device", "precision")}
    return [*metrics, {"name": MODEL, "unit": "1", "gauge": {"dataPoints": points([(runs, 1)])}}]


def _outbox(rows: Mapping[str, int] | None, times: Mapping[str, str]) -> list[Json]:
    if rows is None:
        return []
    waiting = {"attributes": [], **times, "asInt": str(rows["waiting"] + rows["pending"])}
    dropped: list[Json] = [
        {"attributes": attributes_of({"reason": rule}), **times, "asInt": str(rows[f"dropped_{rule}"])}
        for rule in DROPPED
    ]
    summed = {"aggregationTemporality": CUMULATIVE, "isMonotonic": True, "dataPoints": dropped}
    return [
        {"name": "edgekit.outbox.depth", "unit": "{row}", "gauge": {"dataPoints": [waiting]}},
        {"name": "edgekit.outbox.dropped", "unit": "{row}", "sum": summed},
    ]


def _report(report: Mapping[str, Any] | None, times: Mapping[str, str]) -> list[Json]:
    if report is None:
        return []
    scores, metrics = report["scores"], list[Json]()
    if scores["count"]:
        counted = {"aggregationTemporality": CUMULATIVE, "isMonotonic": True}
        count = {"attributes": [], **times, "asInt": str(scores["count"])}
        total = {"attributes": [], **times, "asDouble": scores["sum"]}
        metrics.append({"name": SCORES, "unit": "{score}", "sum": {**counted, "dataPoints": [count]}})
        metrics.append({"name": SCORE_SUM, "unit": "1", "sum": {**counted, "dataPoints": [total]}})
    given_up: list[Json] = [
        {"attributes": attributes_of(entry), **times, "asInt": "1"} for entry in report["given_up"]
    ]
    if given_up:
        metrics.append({"name": GIVEN_UP, "unit": "1", "gauge": {"dataPoints": given_up}})
    return metrics


def _histogram(entry: Mapping[str, Any]) -> dict[str, Json]:
    """Return a histogram; OTLP has the same buckets: base 2 ** (2 ** -scale), starting at ``offset``."""
    return {
        "count": str(entry["count"]),
        "sum": entry["sum"],
        "min": entry["min"],
        "max": entry["max"],
        "scale": entry["scale"],
        "zeroCount": str(entry["zero_count"]),
        "positive": {"offset": entry["offset"], "bucketCounts": [str(n) for n in entry["bucket_counts"]]},
    }


def attributes_of(table: Mapping[str, str]) -> list[Json]:
    """Return attributes, all of them texts, as OTLP has them."""
    return [{"key": key, "value": {"stringValue": value}} for key, value in table.items()]


def _arch() -> str:
    """Return the architecture by OpenTelemetry's semantic conventions."""
    machine = platform.machine()
    return {"x86_64": "amd64", "AMD64": "amd64", "aarch64": "arm64", "armv7l": "arm32"}.get(machine, machine)


def _nano(seconds: float) -> str:
    return str(int(seconds * 1_000_000) * 1000)  # a float Unix time has microsecond precision
