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
from edgekit.runtime.outbox.rows import DROPPED
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

    def point(labels: Mapping[str, str], value: Mapping[str, Json]) -> Json:
        return {"attributes": attributes_of(labels), **times, **value}

    def count(labels: Mapping[str, str], number: int) -> Json:
        return point(labels, {"asInt": str(number)})

    durations: dict[str, list[Json]] = {INFERENCE: [], STAGE: []}
    for entry in snapshot["stages"]:
        labels = {**model, "engine": entry["engine"], "path": "local"}
        if entry["stage"] == END_TO_END:
            durations[INFERENCE].append(point(labels, _histogram(entry)))
        else:
            durations[STAGE].append(point({**labels, "stage": entry["stage"]}, _histogram(entry)))
    metrics = [
        *(_metric(name, "s", "exponentialHistogram", points) for name, points in durations.items()),
        _metric(
            INFERENCES,
            "{inference}",
            "sum",
            [count({**model, "outcome": outcome}, n) for outcome, n in snapshot["outcomes"].items()],
        ),
        _metric(
            FALLBACKS,
            "{change}",
            "sum",
            [
                count({**model, **{key: hop[key] for key in ("from", "to", "reason")}}, hop["count"])
                for hop in snapshot["fallbacks"]
            ],
        ),
    ]
    if (rows := snapshot.get("outbox")) is not None:
        dropped = [count({"reason": rule}, rows[f"dropped_{rule}"]) for rule in DROPPED]
        waiting = [count({}, rows["waiting"] + rows["pending"])]
        metrics.append(_metric("edgekit.outbox.depth", "{row}", "gauge", waiting))
        metrics.append(_metric("edgekit.outbox.dropped", "{row}", "sum", dropped))
    if (report := snapshot.get("report")) is not None:
        scores, given_up = report["scores"], report["given_up"]
        if scores["count"]:
            metrics.append(_metric(SCORES, "{score}", "sum", [count({}, scores["count"])]))
            metrics.append(_metric(SCORE_SUM, "1", "sum", [point({}, {"asDouble": scores["sum"]})]))
        metrics.append(_metric(GIVEN_UP, "1", "gauge", [count(entry, 1) for entry in given_up]))
    runs = {key: str(snapshot[key]) for key in ("bundle", "variant", "engine", "device", "precision")}
    metrics.append(_metric(MODEL, "1", "gauge", [count({**model, **runs}, 1)]))
    return [metric for metric in metrics if metric]


def _metric(name: str, unit: str, kind: str, points: list[Json]) -> Json:
    """Return a metric, or {} without points."""
    if not points:
        return {}
    how = {} if kind == "gauge" else {"aggregationTemporality": CUMULATIVE}
    how |= {"isMonotonic": True} if kind == "sum" else {}
    return {"name": name, "unit": unit, kind: {**how, "dataPoints": points}}


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
    machine = platform.machine()
    return {"x86_64": "amd64", "AMD64": "amd64", "aarch64": "arm64", "armv7l": "arm32"}.get(machine, machine)


def _nano(seconds: float) -> str:
    return str(int(seconds * 1_000_000) * 1000)  # a float Unix time has microsecond precision
