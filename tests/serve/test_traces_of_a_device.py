"""Spans of a device: one request followed through a fallback to a server and back, to one collector."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.runtime import HttpSink, Outbox, RemoteSession, Session, Traces, otlp
from edgekit.runtime.metrics.metrics import Metrics
from tests.fixtures.classifiers import vectors
from tests.fixtures.collector import Collector, Received, collecting, spans_of
from tests.fixtures.threads import until
from tests.runtime.outbox.outbox_parts import ListSink

pytestmark = pytest.mark.needs_ort
X = vectors(1)[0]["x"]


@contextmanager
def serving(bundle: Path, collector: Collector) -> Iterator[str]:
    """``edgekit serve`` as a process that sends its spans to a collector; its URL."""
    environment = {
        **os.environ,
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_SERVICE_NAME": "gpu-server",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
    }
    line = ["serve", f"net={bundle}", "--listen", ":0", "--json"]
    command = "from edgekit.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", command, *line], stdout=subprocess.PIPE, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            urllib.request.urlopen(f"{url}/v2/health/ready", timeout=60).close()  # it has started
            yield url
        finally:
            process.terminate()
            process.wait(60)


@pytest.mark.skipif(sys.platform == "win32", reason="SIGTERM ends a process there without a word")
def test_one_request_from_a_device_through_a_fallback_to_a_server_and_back(
    bundle: Path, tmp_path: Path
) -> None:
    pytest.importorskip("uvicorn", reason="uvicorn is not installed (the extra serve)")
    pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed (the extra traces)")
    with collecting() as collector, serving(bundle, collector) as url:
        sink = HttpSink(f"{collector.url}/v1/traces", content_type=otlp.JSON)
        with (
            Outbox(tmp_path / "traces", sink, commit_s=0.001) as outbox,
            Session(bundle) as session,
        ):
            expected = session.run({"x": X})["scores"]
            traces = Traces(outbox, {"service.name": "gate-camera"})
            with RemoteSession(session, url, "net", deadline_ms=30_000, traces=traces) as remote:
                until(lambda: remote.status()["server"] != "probing")

                def broken(feeds: Any, *_: Any) -> Any:
                    raise RuntimeError("the accelerator is gone")

                session._chain.runner.run = broken  # type: ignore[union-attr,method-assign]
                session._chain._load = broken  # type: ignore[method-assign,assignment]
                with traces.span("frame"):
                    answer = remote.run({"x": X})
                assert (answer.path, np.allclose(answer["scores"], expected, atol=1e-5)) == ("remote", True)
            assert outbox.flush(10)
            until(lambda: {span.service for span in collector.spans} == {"gate-camera", "gpu-server"})
            until(lambda: any(span.name.startswith("POST") for span in collector.spans))
        spans = {(span.service, span.name): span for span in collector.spans}
    device, server = "gate-camera", "gpu-server"
    above = {
        (device, "remote_run"): (device, "frame"),
        (device, "infer"): (device, "remote_run"),
        (device, "infer_remote"): (device, "remote_run"),
        (server, "POST /v2/models/{model}/infer"): (device, "infer_remote"),
        (server, "prepare"): (server, "POST /v2/models/{model}/infer"),
        (server, "waiting"): (server, "POST /v2/models/{model}/infer"),
        (server, "infer"): (server, "POST /v2/models/{model}/infer"),
    }
    assert spans.keys() == {(device, "frame"), *above}
    assert len(spans) == len(collector.spans)
    assert len({span.trace_id for span in collector.spans}) == 1
    assert spans[device, "frame"].parent == ""
    for below, parent in above.items():
        assert spans[below].parent == spans[parent].span_id, below
    assert "accelerator is gone" in str(spans[device, "infer"].failed)
    (event,) = spans[device, "remote_run"].events
    assert event.name == "edgekit.fallback"
    assert (event.attributes["edgekit.fallback.from"], event.attributes["edgekit.fallback.to"]) == (
        "local",
        "remote",
    )
    assert "accelerator is gone" in event.attributes["edgekit.fallback.reason"]
    assert spans[device, "remote_run"].failed is None
    assert spans[device, "infer_remote"].kind == 3
    assert _within(spans[server, "infer"], spans[device, "infer_remote"])


def _within(inner: Received, outer: Received) -> bool:
    """One clock: both processes are on this machine."""
    return outer.began_ns <= inner.began_ns <= inner.ended_ns <= outer.ended_ns


def test_metrics_and_traces_of_a_predict(bundle: Path, tmp_path: Path) -> None:
    with Outbox(tmp_path / "traces", commit_s=0.001) as outbox, Session(bundle) as session:
        metrics = Metrics(session, traces=Traces(outbox))
        metrics.predict(np.zeros((1, 2, 3), np.uint8))
        assert outbox.flush(10)
        stages = {stage["stage"] for stage in metrics.snapshot()["stages"]}
        sink = ListSink()
        outbox.deliver(sink)
    (row,) = sink.parcels
    found = spans_of(row.body, json_form=True)
    assert [span.name for span in found] == ["prepare", "infer", "decode_outputs", "predict"]
    assert {span.name for span in found[:3]} < stages  # the names of metrics and spans join
    assert {span.parent for span in found[:3]} == {found[3].span_id}
