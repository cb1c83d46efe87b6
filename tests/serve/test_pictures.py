"""Predictions for pictures, in each form; the app mounted in another; the OpenAPI document."""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgekit
from edgekit.runtime import Session
from edgekit.serve.model_entries import bundles_by_name
from edgekit.serve.served_model import ServeOptions
from edgekit.serve.served_models import ServedModels
from edgekit.serve.service import Access
from tests.fixtures.classifiers import vectors
from tests.fixtures.detector import detector, detector_card
from tests.fixtures.servers import Running, app_of, running

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
pictures = pytest.importorskip("edgekit.serve.pictures", reason="Starlette is not installed")
pytestmark = pytest.mark.needs_ort
PIXELS = np.array([[[10, 20, 30], [200, 100, 0]]], np.uint8)


def png(pixels: Any = PIXELS) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


PICTURE = png()


@pytest.fixture(scope="module")
def server(bundle: Path) -> Iterator[Running]:
    with running({("net", "1"): bundle}, deadline_ms=30_000) as found:
        yield found


@pytest.fixture(scope="module")
def expected(bundle: Path) -> Any:
    with Session(bundle) as session:
        return session.predict(PIXELS).as_json()


def test_a_picture(server: Running, expected: Any) -> None:
    for path in ("/v2/models/net/predict", "/v2/models/net/versions/1/predict"):
        status, _, body = server.ask("POST", path, png(), {"Content-Type": "image/png"})
        assert status == 200, body
        assert json.loads(body) == {"model_name": "net", "model_version": "1", "prediction": expected}


def test_what_a_first_picture_needs_is_imported_at_the_start(bundle: Path) -> None:
    """On a slow device the first one would otherwise miss its deadline while Pillow is imported."""
    script = f"""
import sys, time
from pathlib import Path
from tests.fixtures.servers import running
needed = "PIL.JpegImagePlugin", "edgekit.processing.image_preparation"
with running({{("net", "1"): Path({str(bundle)!r})}}):
    end_s = time.monotonic() + 30
    while not all(name in sys.modules for name in needed) and time.monotonic() < end_s:
        time.sleep(0.01)
    print([name for name in needed if name not in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_pictures_run_at_the_shape_that_fits_them(tmp_path: Path) -> None:
    shapes = {"image": [(1, 3, 64, 64), (1, 3, 96, 96)]}
    model = detector(tmp_path / "detector.onnx")
    made = edgekit.build(model, targets=["ort"], shapes=shapes, card=detector_card(96), trusted=True)
    path = made.save(tmp_path / "d.edgekit")
    with Session(path) as session, running({("d", "1"): path}, deadline_ms=30_000) as server:
        for size in (60, 90):
            pixels = np.random.default_rng(size).integers(0, 256, (size, size, 3)).astype(np.uint8)
            status, _, body = server.ask(
                "POST", "/v2/models/d/predict", png(pixels), {"Content-Type": "image/png"}
            )
            assert status == 200, body
            assert session.prepare(pixels)[0]["image"].shape[-1] == (64 if size == 60 else 96)
            assert json.loads(body)["prediction"] == session.predict(pixels).as_json()


@pytest.mark.parametrize("body", [b"", b"no picture", png()[:30]], ids=["empty", "other", "cut"])
def test_what_is_no_picture(server: Running, body: bytes) -> None:
    status, _, answer = server.ask("POST", "/v2/models/net/predict", body)
    assert (status, "the body can't be read as a picture" in json.loads(answer)["error"]) == (400, True)


def test_a_server_without_pillow_says_that_it_lacks_a_package(
    server: Running, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for module in [name for name in sys.modules if name == "PIL" or name.startswith("PIL.")]:
        monkeypatch.setitem(sys.modules, module, None)
    status, _, answer = server.ask("POST", "/v2/models/net/predict", PICTURE)
    assert (status, json.loads(answer)["error"]) == (
        500,
        "the server lacks a package for this request; the server's log names it",
    )
    assert "pillow is not installed" in capfd.readouterr().err


def test_pictures_over_a_websocket(server: Running, expected: Any) -> None:
    client = pytest.importorskip("websockets.sync.client", reason="websockets is not installed (extra serve)")
    from websockets.exceptions import InvalidStatus

    url = f"ws://127.0.0.1:{server.port}/v2/models/net/stream"
    with client.connect(url) as socket:
        for number in range(3):
            socket.send(png())
            answer = json.loads(socket.recv(timeout=30))
            assert (answer["index"], answer["prediction"]) == (number, expected)
        socket.send("a text")
        assert json.loads(socket.recv(timeout=30)) == {
            "index": 3, "error": "send each picture as a binary message", "status": 400,
        }  # fmt: skip
        socket.send(b"no picture")
        assert json.loads(socket.recv(timeout=30))["status"] == 400
        socket.send(png())
        assert json.loads(socket.recv(timeout=30))["prediction"] == expected
    for path, headers, status in (
        ("nothing", {}, 404),
        ("net", {"Origin": "http://elsewhere.example"}, 403),
    ):
        with pytest.raises(InvalidStatus) as error:
            client.connect(url.replace("net", path), additional_headers=headers)
        assert error.value.response.status_code == status


def events(server: Running, count: int, headers: dict[str, str]) -> Generator[tuple[str, Any], None, None]:
    """Yield the number and data of each event; a server waits for a listener that is not closed."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)) as wire:
        wire.request("GET", "/v2/models/net/events", headers=headers)
        with wire.getresponse() as reply:
            assert reply.headers["content-type"].startswith("text/event-stream")
            assert reply.readline() == b"retry: 100\n"
            yield "", None
            reply.readline()
            for _ in range(count):
                number, data, blank = (reply.readline() for _ in range(3))
                assert blank == b"\n"
                yield number.decode().split()[1], json.loads(data.removeprefix(b"data: "))


def test_events(server: Running, expected: Any) -> None:
    listening = events(server, 2, {})
    next(listening)  # it listens
    for _ in range(2):
        server.ask("POST", "/v2/models/net/predict", png())
    (first, answer), (second, _) = listening
    assert (answer["prediction"], int(second)) == (expected, int(first) + 1)
    again = events(server, 1, {"Last-Event-ID": first})  # what it missed
    next(again)
    assert next(again)[0] == second


def test_more_listeners_than_a_model_may_have(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "LISTENERS", 2)
    with running({("net", "1"): bundle}, deadline_ms=30_000) as server:
        listening = [events(server, 1, {}) for _ in range(2)]
        for each in listening:
            next(each)
        status, headers, told = server.ask("GET", "/v2/models/net/events")
        assert (status, headers["retry-after"]) == (503, "1")
        assert json.loads(told) == {"error": "2 clients already listen to net; retry in 1 s"}
        server.ask("POST", "/v2/models/net/predict", png())
        assert [next(each)[0] for each in listening] == ["1", "1"]
        for each in listening:
            each.close()


def test_events_are_kept_within_the_memory_for_requests(bundle: Path) -> None:
    with running({("net", "1"): bundle}, deadline_ms=30_000) as server:
        memory, listening = server.app.memory, events(server, 1, {})
        next(listening)
        server.ask("POST", "/v2/models/net/predict", png())
        one = memory.held_bytes
        assert one > 0
        for _ in range(3):
            server.ask("POST", "/v2/models/net/predict", png())
        assert memory.held_bytes == 4 * one
        with memory.lease() as lease:
            memory.limit_bytes = 1 << 20
            lease.hold((1 << 20) - memory.held_bytes - one - 3_000)
            for _ in range(60):
                server.ask("POST", "/v2/models/net/predict", png())
        assert 0 < memory.held_bytes < 20 * one
        listening.close()


def test_events_end_by_themselves_and_do_not_keep_a_server_from_ending(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "EVENT_SECONDS", 0.3)
    with running({("net", "1"): bundle}, deadline_ms=30_000) as server:
        status, _, told = server.ask("GET", "/v2/models/net/events")
    assert (status, told) == (200, b"retry: 100\n\n")


def test_clients_that_are_gone_before_the_events_begin_take_no_place(server: Running) -> None:
    app = server.server.config.app
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "method": "GET", "path": "/v2/models/net/events",
        "headers": [(b"host", b"127.0.0.1")], "query_string": b"",
    }  # fmt: skip

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        assert message.get("status", 200) == 200
        await asyncio.Event().wait()  # as long as what was sent before is not read

    async def clients() -> None:
        for _ in range(pictures.LISTENERS + 1):
            await app(scope, receive, send)

    asyncio.run(clients())


def test_pages_of_other_servers_are_refused(server: Running) -> None:
    status, _, body = server.ask("GET", "/v2", headers={"Origin": "http://elsewhere.example"})
    assert (status, "web pages of other servers" in json.loads(body)["error"]) == (403, True)
    assert server.ask("GET", "/v2", headers={"Origin": server.url})[0] == 200


def test_mounted_in_another_app(bundle: Path) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount
    from starlette.testclient import TestClient

    models = ServedModels(bundles_by_name([f"net={bundle}"]), ServeOptions(threads=1))
    inner = app_of.make_app(models, Access("t" * 20, loopback=False))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with inner.router.lifespan_context(inner):  # closes the models
            yield

    net = models.find("net", None)
    x = vectors(1)[0]["x"]
    tensor = {"name": "x", "shape": list(x.shape), "datatype": "FP32", "data": x.ravel().tolist()}
    with TestClient(Starlette(routes=[Mount("/ml", inner)], lifespan=lifespan)) as client:
        assert client.get("/ml/v2/health/live").status_code == 200  # without a token
        assert client.get("/ml/v2/models/net").status_code == 401
        good = {"Authorization": "Bearer " + "t" * 20}
        answer = client.post("/ml/v2/models/net/infer", json={"inputs": [tensor]}, headers=good)
        assert answer.json()["model_name"] == "net"
    assert net.session.state == "closed"


def test_the_openapi_document_is_what_is_served(server: Running) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    status, document = server.get("/v2/openapi.json")
    assert (status, document["openapi"]) == (200, "3.1.0")
    routes = {
        (method.lower(), route.path)
        for route in server.server.config.app.routes
        for method in getattr(route, "methods", None) or ()
        if method != "HEAD"
    }
    described = {(method, path) for path, methods in document["paths"].items() for method in methods}
    assert described == routes

    def check(name: str, answer: Any) -> None:
        schemas = {"components": document["components"], "$ref": f"#/components/schemas/{name}"}
        jsonschema.Draft202012Validator(schemas).validate(answer)

    x = vectors(1)[0]["x"]
    tensor = {"name": "x", "shape": list(x.shape), "datatype": "FP32", "data": x.ravel().tolist()}
    check("InferenceRequest", {"inputs": [tensor]})
    body = json.dumps({"inputs": [tensor]})
    check("InferenceResponse", json.loads(server.ask("POST", "/v2/models/net/infer", body)[2]))
    check("Prediction", json.loads(server.ask("POST", "/v2/models/net/predict", png())[2]))
    check("Index", json.loads(server.ask("POST", "/v2/repository/index")[2]))
    check("Error", server.get("/v2/models/none")[1])
    for path, name in (("", "Server"), ("/models/net", "Model"), ("/models/net/ready", "ModelReady")):
        check(name, server.get(f"/v2{path}")[1])
    with pytest.raises(jsonschema.ValidationError):
        check("InferenceRequest", {"inputs": [{**tensor, "datatype": "FP33"}]})
