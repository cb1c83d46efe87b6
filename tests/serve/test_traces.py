"""Spans of a server by OpenTelemetry's SDK, over HTTP and gRPC, and what turns them on."""

from __future__ import annotations

import io
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.serve.inference_requests import RequestError
from edgekit.serve.service import Access
from tests.fixtures.bundles import small_bundle, variant
from tests.fixtures.chat_bundles import chat_bundle
from tests.fixtures.classifiers import vectors
from tests.fixtures.fake_engines import Engines, change, throws
from tests.fixtures.servers import Running, held, running
from tests.fixtures.threads import until

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed (the extra traces)")
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from edgekit.serve import request_traces

pytestmark = pytest.mark.needs_ort
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "congo=t61rcWkgMzE"}
X = vectors(1)[0]["x"]
TENSOR = {"name": "x", "shape": [1, 3, 1, 2], "datatype": "FP32", "data": X.ravel().tolist()}
ASK = json.dumps({"inputs": [TENSOR]}).encode()
INFER = "/v2/models/net/infer"


class Recorded:
    """Traces of a server in this process, and what they exported."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.traces = request_traces.ServerTraces(self.provider)

    def request(self, route: str) -> tuple[ReadableSpan, dict[str, ReadableSpan]]:
        """Wait for the only request; its span and those below it, by name."""
        until(lambda: any(span.name.endswith(route) for span in self.exporter.get_finished_spans()))
        spans = self.exporter.get_finished_spans()
        self.exporter.clear()
        (whole,) = (span for span in spans if span.name.endswith(route))
        parts = [span for span in spans if span is not whole]
        for part in parts:
            assert part.parent is not None
            assert part.parent.span_id == whole.context.span_id
            assert part.context.trace_id == whole.context.trace_id
            assert whole.start_time <= part.start_time <= part.end_time <= whole.end_time
        assert len({part.name for part in parts}) == len(parts)
        return whole, {part.name: part for part in parts}


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    return Recorded()


@pytest.fixture(scope="module")
def server(bundle: Path, recorded: Recorded) -> Iterator[Running]:
    with running({("net", "1"): bundle}, deadline_ms=30_000, traces=recorded.traces) as found:
        yield found


@pytest.fixture(autouse=True)
def cleared(recorded: Recorded) -> None:
    recorded.exporter.clear()


def test_a_request_continues_its_senders_trace(server: Running, recorded: Recorded) -> None:
    status, headers, _ = server.ask("POST", INFER, ASK, PARENT)
    whole, parts = recorded.request("/v2/models/{model}/infer")
    assert status == 200
    assert headers["traceparent"] == f"00-{TRACE}-{whole.context.span_id:016x}-01"
    assert (f"{whole.context.trace_id:032x}", f"{whole.parent.span_id:016x}") == (TRACE, SPAN)
    assert (whole.parent.is_remote, whole.context.trace_state.to_header()) == (True, PARENT["tracestate"])
    assert (whole.name, whole.kind.name) == ("POST /v2/models/{model}/infer", "SERVER")
    assert whole.attributes["http.response.status_code"] == 200
    assert list(parts) == ["prepare", "waiting", "infer"]
    assert (
        parts["infer"].attributes["edgekit.variant"] == server.models.find("net", None).session.active.variant
    )
    assert parts["infer"].attributes["edgekit.batch"] == 1


@pytest.mark.parametrize(
    "header",
    [f"ff-{TRACE}-{SPAN}-01", f"00-{TRACE.upper()}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01", "x" * 60_000],
)
def test_a_malformed_header_begins_a_trace(server: Running, recorded: Recorded, header: str) -> None:
    status, headers, _ = server.ask("POST", INFER, ASK, {"traceparent": header, "tracestate": "a=1"})
    whole, _ = recorded.request("/infer")
    assert (status, whole.parent, whole.context.trace_state.to_header()) == (200, None, "")
    assert headers["traceparent"].split("-")[1] == f"{whole.context.trace_id:032x}" != TRACE


def test_what_the_sender_does_not_record_is_not_recorded(server: Running, recorded: Recorded) -> None:
    status, headers, _ = server.ask("POST", INFER, ASK, {"traceparent": f"00-{TRACE}-{SPAN}-00"})
    assert (status, headers["traceparent"][:36], headers["traceparent"][-3:]) == (200, f"00-{TRACE}-", "-00")
    assert server.ask("GET", "/v2/health/ready")[0] == 200
    assert "traceparent" not in server.ask("GET", "/v2/models/net")[1]
    assert recorded.exporter.get_finished_spans() == ()


def test_a_picture_has_all_stages(server: Running, recorded: Recorded) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    file = io.BytesIO()
    image.fromarray(np.zeros((1, 2, 3), np.uint8)).save(file, "PNG")
    status, _, _ = server.ask("POST", "/v2/models/net/versions/1/predict", file.getvalue(), PARENT)
    whole, parts = recorded.request("/v2/models/{model}/versions/{version}/predict")
    assert (status, f"{whole.context.trace_id:032x}") == (200, TRACE)
    assert list(parts) == ["prepare", "waiting", "infer", "decode_outputs"]


def test_a_clients_fault_is_no_error_of_the_span(server: Running, recorded: Recorded) -> None:
    status, headers, _ = server.ask("POST", INFER, b"{}", PARENT)
    whole, _ = recorded.request("/infer")
    assert (status, whole.attributes["http.response.status_code"], whole.status.status_code.name) == (
        400,
        400,
        "UNSET",
    )
    assert headers["traceparent"].split("-")[1] == TRACE


def test_an_error_has_the_trace_in_the_log(
    server: Running, recorded: Recorded, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = server.models.find("net", None)

    def broken(*_: Any) -> Any:
        raise RuntimeError("/srv/secret.onnx is broken")

    monkeypatch.setattr(model, "run", broken)
    status, headers, _ = server.ask("POST", INFER, ASK, PARENT)
    whole, _ = recorded.request("/infer")
    assert (status, headers["traceparent"].split("-")[1]) == (500, TRACE)
    assert whole.status.status_code.name == "ERROR"
    assert f"error: (trace {TRACE})" in capfd.readouterr().err


def test_a_fallback_is_an_event_and_its_log_message_has_the_trace(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgekit.target.registry.engine", Engines("ort", "tflite"))
    variants = [variant("onnx", "ort", p50_ms=7.0), variant("lite", "tflite", p50_ms=9.0)]
    small_bundle(variants).save(tmp_path / "net.edgekit")
    own = Recorded()
    with running({("net", "1"): tmp_path / "net.edgekit"}, traces=own.traces) as found:
        change(found.models.find("net", None).session, throws)
        tensor = {"name": "x", "shape": [1, 6], "datatype": "FP32", "data": [0.0] * 6}
        with caplog.at_level(logging.WARNING):
            status, _, _ = found.ask("POST", INFER, json.dumps({"inputs": [tensor]}), PARENT)
        _, parts = own.request("/infer")
    (event,) = parts["infer"].events
    assert (status, event.name) == (200, "edgekit.fallback")
    hop = {key.rpartition(".")[2]: value for key, value in event.attributes.items()}
    assert (hop["from"], hop["to"]) == ("onnx", "lite")
    assert "RuntimeError" in hop["reason"]
    assert parts["infer"].attributes["edgekit.variant"] == "lite"
    assert any("fell back" in text and TRACE in text for text in caplog.messages)


def test_who_has_no_access_leaves_no_span(bundle: Path) -> None:
    own = Recorded()
    with running({("net", "1"): bundle}, access=Access(token="t" * 16), traces=own.traces) as found:
        status, headers, _ = found.ask("POST", INFER, ASK, PARENT)
        assert (status, "traceparent" in headers) == (401, False)
        token = {"Authorization": f"Bearer {'t' * 16}"}
        assert found.ask("POST", INFER, ASK, {**PARENT, **token})[0] == 200
        own.request("/infer")
        assert own.exporter.get_finished_spans() == ()


def test_requests_of_one_connection_do_not_mix(server: Running, recorded: Recorded) -> None:
    head = f"POST {INFER} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(ASK)}\r\n"
    requests = [f"{head}traceparent: 00-{n:032x}-{SPAN}-01\r\n\r\n".encode() + ASK for n in range(1, 9)]
    with socket.create_connection(("127.0.0.1", server.port)) as wire:
        wire.sendall(b"".join(requests))
        until(lambda: len(recorded.exporter.get_finished_spans()) == 8 * 4)
    by_trace: dict[int, list[str]] = {}
    for span in recorded.exporter.get_finished_spans():
        by_trace.setdefault(span.context.trace_id, []).append(span.name)
    assert by_trace.keys() == set(range(1, 9))
    assert all(sorted(names)[1:] == ["infer", "prepare", "waiting"] for names in by_trace.values())


def test_a_request_that_is_not_run_has_its_waiting(server: Running, recorded: Recorded) -> None:
    late = json.dumps({"inputs": [TENSOR], "parameters": {"timeout": 300_000}}).encode()
    statuses: list[int] = []
    with held(server) as waiting:
        running_one = threading.Thread(target=lambda: server.ask("POST", INFER, ASK))
        running_one.start()
        waiting(0)
        asking = threading.Thread(target=lambda: statuses.append(server.ask("POST", INFER, late, PARENT)[0]))
        asking.start()
        waiting(1)
        time.sleep(0.4)
    asking.join()
    running_one.join()
    spans = [s for s in recorded.exporter.get_finished_spans() if f"{s.context.trace_id:032x}" == TRACE]
    assert statuses == [503]
    assert sorted(span.name for span in spans) == ["POST /v2/models/{model}/infer", "prepare", "waiting"]
    (waited,) = (span for span in spans if span.name == "waiting")
    assert waited.end_time - waited.start_time > 0.2e9


@pytest.mark.needs_tokenizers
@pytest.mark.needs_templates
@pytest.mark.parametrize("stream", [False, True])
def test_a_chat(tmp_path: Path, stream: bool) -> None:
    own = Recorded()
    bundle = chat_bundle(tmp_path / "tiny.edgekit")
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 4,
        "temperature": 0,
    }
    with running({("tiny", "1"): bundle}, traces=own.traces) as found:
        status, headers, _ = found.ask(
            "POST", "/v1/chat/completions", json.dumps({**body, "stream": stream}), PARENT
        )
        _, parts = own.request("/v1/chat/completions")
    assert (status, headers["traceparent"].split("-")[1]) == (200, TRACE)
    assert list(parts) == ["wait", "prepare", "first_token", "tokens"]
    assert parts["tokens"].attributes["edgekit.tokens"] == 4
    assert parts["tokens"].attributes["edgekit.engine"]


def test_grpc_takes_and_returns_it(bundle: Path) -> None:
    grpc = pytest.importorskip("grpc", reason="grpcio is not installed (the extra serve)")
    from tests.fixtures.grpc_servers import M, asked
    from tests.fixtures.grpc_servers import running as grpc_running

    own = Recorded()
    with grpc_running({("net", "1"): bundle}, traces=own.traces, deadline_ms=30_000) as client:
        call = client.channel.unary_unary(
            f"/{request_traces.SERVICE}/ModelInfer",
            lambda m: m.SerializeToString(),
            M["ModelInferResponse"].FromString,
        )
        _, done = call.with_call(asked(), timeout=30, wait_for_ready=True, metadata=tuple(PARENT.items()))
        whole, parts = own.request("/ModelInfer")
        assert dict(done.trailing_metadata())["traceparent"].split("-")[1] == TRACE
        assert (f"{whole.parent.span_id:016x}", list(parts)) == (SPAN, ["prepare", "waiting", "infer"])
        with pytest.raises(grpc.RpcError, match="NOT_FOUND") as caught:
            call(asked(model_name="other"), timeout=30, metadata=tuple(PARENT.items()))
        assert dict(caught.value.trailing_metadata())["traceparent"].split("-")[1] == TRACE
        assert own.request("/ModelInfer")[0].status.status_code.name == "UNSET"

        def busy(*_: Any) -> Any:
            raise RequestError("the queue is full", 503, 1)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(client.server.models.find("net", None), "run", busy)
            with pytest.raises(grpc.RpcError, match="UNAVAILABLE") as caught:
                call(asked(), timeout=30, metadata=tuple(PARENT.items()))
        trailing = dict(caught.value.trailing_metadata())
        assert (trailing["traceparent"].split("-")[1], trailing["retry-after"]) == (TRACE, "1")
        assert own.request("/ModelInfer")[0].status.status_code.name == "ERROR"
        stream = client.channel.stream_stream(
            f"/{request_traces.SERVICE}/ModelStreamInfer",
            lambda m: m.SerializeToString(),
            M["ModelStreamInferResponse"].FromString,
        )
        answers = list(stream(iter([asked(), asked()]), timeout=30, metadata=tuple(PARENT.items())))
        assert len(answers) == 2
        spans = own.exporter.get_finished_spans()
        assert {f"{span.context.trace_id:032x}" for span in spans} == {TRACE}
        assert sum(span.name.endswith("ModelInfer") for span in spans) == 2


# --- the environment -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"}, ""),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "zipkin"},
            "warning: traces are off: OTEL_TRACES_EXPORTER is 'zipkin'; use otlp or none\n",
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
            "warning: traces are off: OTEL_EXPORTER_OTLP_PROTOCOL is 'http/json'; "
            "use http/protobuf or grpc\n",
        ),
    ],
)
def test_what_keeps_traces_off(
    variables: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in list(os.environ):
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert request_traces.traces_of_environment() is None
    assert capsys.readouterr().err == told


def test_a_missing_package_keeps_traces_off_and_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:1/v1/traces")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    assert request_traces.traces_of_environment() is None
    told = capsys.readouterr().err
    assert told.startswith("warning: traces are off: opentelemetry-sdk is not installed, and ")
    assert "[traces]" in told


def test_without_traces_nothing_of_opentelemetry_is_imported() -> None:
    code = (
        "import sys, edgekit.serve.app, edgekit.serve.server, edgekit.runtime\n"
        "from edgekit.runtime import RemoteSession, Metrics, Traces\n"
        "from edgekit.serve.request_traces import traces_of_environment\n"
        "assert traces_of_environment() is None\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert (said.stdout, said.returncode) == ("[]\n", 0), said.stderr
