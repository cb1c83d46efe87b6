"""Spans of a device: read by OpenTelemetry's own schema from the rows of a real outbox."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit.errors import NoVariantError, UsageError
from edgekit.runtime import Outbox, Session, Traces
from edgekit.runtime.metrics.metrics import Metrics
from edgekit.runtime.remote.remote_session import RemoteSession
from edgekit.runtime.traces.trace_context import CURRENT
from edgekit.runtime.traces.traces import SPANS
from tests.fixtures.bundles import X, small_bundle, variant
from tests.fixtures.collector import Received, spans_of
from tests.fixtures.fake_engines import Engines, change, throws
from tests.fixtures.ports import unused_port
from tests.fixtures.threads import in_threads
from tests.runtime.outbox.outbox_parts import ListSink

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def delivered(outbox: Outbox) -> list[list[Received]]:
    """The spans of each row, in order of their end."""
    assert outbox.flush(10)
    sink = ListSink()
    outbox.deliver(sink)
    assert {row.kind for row in sink.parcels} <= {"log"}
    return [spans_of(row.body, json_form=True) for row in sink.parcels]


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    with Outbox(tmp_path / "traces", commit_s=0.001) as found:
        yield found


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    monkeypatch.setattr("edgekit.target.registry.engine", Engines("ort", "tflite"))
    bundle = small_bundle([variant("onnx", "ort", p50_ms=7.0), variant("lite", "tflite", p50_ms=9.0)])
    with Session(bundle, threads=1) as found:
        yield found


def test_a_run_is_a_span_and_its_fallback_an_event(session: Session, outbox: Outbox) -> None:
    metrics = Metrics(session, traces=Traces(outbox, {"service.name": "gate", "device.id": "7"}))
    metrics.run({"x": X})
    change(session, throws)
    metrics.run({"x": X})
    (first,), (second,) = delivered(outbox)
    assert (first.service, first.name, first.kind, first.parent) == ("gate", "infer", 1, "")
    assert first.attributes["edgekit.variant"] == "onnx"
    assert first.attributes["edgekit.engine"] == "Ort Runtime 1.0"
    assert 0 < first.ended_ns - first.began_ns < 60e9
    assert first.events == []
    assert second.trace_id != first.trace_id
    assert second.attributes["edgekit.variant"] == "lite"
    (event,) = second.events
    assert event.name == "edgekit.fallback"
    hop = {key.rpartition(".")[2]: value for key, value in event.attributes.items()}
    assert (hop["from"], hop["to"], hop["reason"] != "") == ("onnx", "lite", True)
    assert second.failed is None


def test_spans_of_the_app_hold_those_of_its_calls_in_one_row(session: Session, outbox: Outbox) -> None:
    traces = Traces(outbox)
    metrics = Metrics(session, traces=traces)
    with traces.span("frame", {"app.camera": "7"}, traceparent=f"00-{TRACE}-{SPAN}-01") as frame:
        metrics.run({"x": X})
        metrics.run({"x": X})
        assert CURRENT.get() == frame.context
    assert CURRENT.get() is None
    (row,) = delivered(outbox)
    assert [span.name for span in row] == ["infer", "infer", "frame"]
    assert {span.trace_id for span in row} == {TRACE}
    assert [span.parent for span in row] == [row[2].span_id, row[2].span_id, SPAN]
    assert row[2].attributes == {"app.camera": "7"}


def test_a_call_that_fails_is_marked(session: Session, outbox: Outbox) -> None:
    metrics = Metrics(session, traces=Traces(outbox))
    session.close()
    with pytest.raises(UsageError):
        metrics.run({"x": X})
    (span,) = delivered(outbox)[0]
    assert span.failed is not None
    assert "is closed" in span.failed


def test_the_device_decides_what_is_recorded_and_the_server_follows(session: Session, outbox: Outbox) -> None:
    traces = Traces(outbox, share=0.0)
    with traces.span("frame") as span:
        assert span.context.headers["traceparent"].endswith("-00")
        Metrics(session, traces=traces).run({"x": X})
    with traces.span("frame", traceparent=f"00-{TRACE}-{SPAN}-01"):
        pass
    assert [[span.trace_id for span in row] for row in delivered(outbox)] == [[TRACE]]
    for share in (-0.1, 1.1, float("nan")):
        with pytest.raises(UsageError, match="share must be from 0 to 1"):
            Traces(outbox, share=share)


def test_a_failed_device_without_a_server(
    session: Session, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"http://127.0.0.1:{unused_port()}"
    with RemoteSession(session, url, "m", policy="local-only", traces=Traces(outbox)) as remote:
        remote.run({"x": X})
        monkeypatch.setattr(session._chain, "run_on_next", _nothing_runs)
        change(session, throws)
        with pytest.raises(NoVariantError):
            remote.run({"x": X})
    (infer, whole), (failed, failed_whole) = delivered(outbox)
    assert (infer.name, infer.parent, whole.name, whole.parent) == ("infer", whole.span_id, "remote_run", "")
    assert whole.attributes["edgekit.path"] == "local"
    assert (failed.failed, failed_whole.failed) == ("all failed", "all failed")
    assert failed_whole.events == []


def _nothing_runs(*_: object) -> dict[str, object]:
    raise NoVariantError("all failed")


def test_a_closed_outbox_fails_no_request(session: Session, outbox: Outbox) -> None:
    traces = Traces(outbox)
    outbox.close()
    Metrics(session, traces=traces).run({"x": X})
    assert traces.dropped == 1


def test_many_spans_are_several_rows_and_threads_do_not_mix(outbox: Outbox) -> None:
    traces = Traces(outbox)

    def work() -> None:
        with traces.span("root"):
            for _ in range(SPANS + 10):
                with traces.span("child"):
                    pass

    in_threads(*[work] * 4)
    rows = delivered(outbox)
    assert sorted(len(row) for row in rows) == [11] * 4 + [SPANS] * 4
    assert all(len({span.trace_id for span in row}) == 1 for row in rows)
    assert (traces._open, traces._ended) == ({}, {})
