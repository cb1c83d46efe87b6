"""OTLP: what OpenTelemetry's own schema reads of it, and what reaches a collector after a time offline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgekit.errors import UsageError
from edgekit.runtime import Session
from edgekit.runtime.metrics import otlp
from edgekit.runtime.metrics.exporter import OFFLINE_S, RARELY_S, MetricsExporter, plain
from edgekit.runtime.metrics.metrics import Metrics
from edgekit.runtime.metrics.prometheus import families, text
from edgekit.runtime.outbox.outbox import Outbox
from edgekit.runtime.outbox.rows import Parcel
from edgekit.runtime.outbox.sinks import SinkDownError
from tests.fixtures.bundles import X, small_bundle, variant
from tests.fixtures.fake_engines import Engines, change, throws
from tests.fixtures.threads import no_new_threads
from tests.runtime.outbox.outbox_parts import ListSink


def no_network(parcel: Parcel) -> None:
    raise SinkDownError("no network")


DOWN = ListSink(no_network)


@pytest.fixture
def metrics(monkeypatch: pytest.MonkeyPatch) -> Iterator[Metrics]:
    monkeypatch.setattr("edgekit.target.registry.engine", Engines("ort", "tflite"))
    bundle = small_bundle([variant("onnx", "ort", p50_ms=7.0), variant("lite", "tflite", p50_ms=9.0)])
    with Session(bundle, threads=1) as session:
        metrics = Metrics(session)
        metrics.run({"x": X})
        change(session, throws)
        metrics.run({"x": X})
        for seconds in (0.0, 0.003, 0.02, 0.02, 100.0):
            metrics.took({"prepare": 0.001, "infer": seconds})
        yield metrics


def parsed(content: bytes) -> Any:
    """As a collector reads it; fields that the schema does not have are errors."""
    json_format = pytest.importorskip("google.protobuf.json_format", reason="opentelemetry-proto is missing")
    service = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
    return json_format.Parse(content, service.ExportMetricsServiceRequest())


def attributes(of: Any) -> dict[str, str]:
    return {pair.key: pair.value.string_value for pair in of.attributes}


def test_opentelemetrys_own_schema_reads_it(metrics: Metrics) -> None:
    snapshot = metrics.snapshot()
    request = parsed(otlp.body(snapshot, {"service.name": "gate", "device.id": "7"}))
    (resource,) = request.resource_metrics
    about = attributes(resource.resource)
    assert (about["service.name"], about["device.id"]) == ("gate", "7")
    assert set(about) == {"service.name", "device.id", "host.arch"}
    (scope,) = resource.scope_metrics
    found = {metric.name: metric for metric in scope.metrics}
    assert list(found) == [otlp.INFERENCE, otlp.STAGE, otlp.INFERENCES, otlp.FALLBACKS, otlp.MODEL]
    stages = {
        (attributes(point)["stage"], attributes(point)["engine"]): point
        for point in found[otlp.STAGE].exponential_histogram.data_points
    }
    point = stages["infer", "Tflite Runtime 1.0"]
    assert (found[otlp.STAGE].unit, found[otlp.STAGE].exponential_histogram.aggregation_temporality) == (
        "s",
        2,
    )
    assert point.time_unix_nano >= point.start_time_unix_nano > 1.6e18
    assert point.zero_count == 1
    assert point.count == point.zero_count + sum(point.positive.bucket_counts) == 6
    base = 2.0 ** (2.0**-point.scale)
    bounds = [
        base ** (point.positive.offset + n)
        for n, count in enumerate(point.positive.bucket_counts)
        for _ in range(count)
    ]
    for time, count in ((0.003, 1), (0.02, 2), (100.0, 1)):  # and one run's own time
        assert sum(low < time <= low * base * (1 + 1e-12) for low in bounds) >= count
    assert len(bounds) == 5
    answers = {attributes(point)["outcome"]: point.as_int for point in found[otlp.INFERENCES].sum.data_points}
    assert answers == {"ok": 1, "fallback": 1}
    assert found[otlp.INFERENCES].sum.is_monotonic
    (hop,) = found[otlp.FALLBACKS].sum.data_points
    assert (attributes(hop)["from"], attributes(hop)["to"], hop.as_int) == ("onnx", "lite", 1)
    (model,) = found[otlp.MODEL].gauge.data_points
    assert (attributes(model)["variant"], model.as_int) == ("lite", 1)


def test_an_outbox_is_told_of_too(metrics: Metrics, tmp_path: Path) -> None:
    with Outbox(tmp_path, commit_s=0.001) as outbox:
        telling = Metrics(metrics._session, outbox)
        for n in range(3):
            outbox.put(b"row", key=str(n))
        assert outbox.flush(10)
        outbox.deliver(DOWN)
        snapshot = telling.snapshot()
        page = text(families(snapshot)).splitlines()
        assert "edgekit_outbox_depth 3" in page
        assert 'edgekit_outbox_dropped_total{reason="age"} 0' in page
        assert "edgekit_outbox_delivered_total 0" in page
        request = parsed(otlp.body(snapshot))
        found = {m.name: m for m in request.resource_metrics[0].scope_metrics[0].metrics}
        assert found["edgekit.outbox.depth"].gauge.data_points[0].as_int == 3
        rules = [attributes(point)["reason"] for point in found["edgekit.outbox.dropped"].sum.data_points]
        assert rules == ["age", "room", "memory"]
        assert json.loads(plain(snapshot))["outbox"]["waiting"] == 3
    assert "outbox" not in telling.snapshot()  # closed: its counts are nobody's any more, the rest is told


def test_nothing_of_an_input_or_an_answer_is_in_it(metrics: Metrics) -> None:
    content = otlp.body(metrics.snapshot())
    table = json.loads(content)
    assert table == json.loads(content)

    def leaves(value: Any) -> Iterator[Any]:
        if isinstance(value, dict):
            for each in value.values():
                yield from leaves(each)
        elif isinstance(value, list):
            for each in value:
                yield from leaves(each)
        else:
            yield value

    strings = {leaf for leaf in leaves(table) if isinstance(leaf, str)}
    assert not [text for text in strings if "/" in text or "\\" in text]
    assert len(content) < 8000


def test_metrics_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgekit.target.registry.engine", Engines("ort"))
    with Session(small_bundle(), threads=1) as session:
        request = parsed(otlp.body(Metrics(session).snapshot()))
    names = [metric.name for metric in request.resource_metrics[0].scope_metrics[0].metrics]
    assert names == [otlp.MODEL]


def test_metrics_survive_being_offline(metrics: Metrics, tmp_path: Path) -> None:
    """Two rows while nobody answers, the process ends; the next one delivers them, and its own."""
    with Outbox(tmp_path, commit_s=0.001) as outbox, MetricsExporter(metrics, outbox, otlp.body) as spool:
        spool.put()
        assert outbox.flush(10)
        assert outbox.deliver(DOWN).down
    metrics.took({"infer": 0.5})
    sink = ListSink()
    with Outbox(tmp_path, commit_s=0.001) as outbox:
        with MetricsExporter(metrics, outbox, otlp.body):
            pass
        assert outbox.flush(10)
        assert outbox.deliver(sink).delivered == 3
    counts = []
    for parcel in sink.parcels:
        metric = parsed(parcel.body).resource_metrics[0].scope_metrics[0].metrics[0]
        counts.append(sum(point.count for point in metric.exponential_histogram.data_points))
    assert counts == [7, 7, 8]  # cumulative: the last one has it all


def test_rows_come_by_themselves_and_end_with_it(metrics: Metrics, tmp_path: Path) -> None:
    sink = ListSink()
    with no_new_threads():
        outbox = Outbox(tmp_path, commit_s=0.001)
        with MetricsExporter(metrics, outbox, every_s=0.005):
            while len(sink.parcels) < 3:
                outbox.deliver(sink)
        outbox.close()
    assert {parcel.kind for parcel in sink.parcels} == {"metric"}
    assert json.loads(sink.parcels[0].body)["outcomes"] == {"ok": 1, "fallback": 1}
    assert sink.parcels[0].body.startswith(plain(metrics.snapshot())[:40])


def test_rows_are_rarer_when_nobody_took_one_for_a_day(metrics: Metrics, tmp_path: Path) -> None:
    now_s = [0.0]
    outbox = Outbox(tmp_path, commit_s=0.001)
    with outbox, MetricsExporter(metrics, outbox, clock=lambda: now_s[0]) as spool:
        spool.put()
        assert outbox.flush(10)
        outbox.deliver(DOWN)
        for now_s[0], wait_s in ((1.0, 60.0), (OFFLINE_S - 1, 60.0), (OFFLINE_S + 1, RARELY_S)):
            assert spool.wait_s() == wait_s
        outbox.deliver(ListSink())
        assert spool.wait_s() == 60.0
    with pytest.raises(UsageError) as error:
        MetricsExporter(metrics, outbox, every_s=0)
    assert str(error.value) == "every_s must be positive, not 0"
