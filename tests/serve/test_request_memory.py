"""The memory for requests: one budget of all protocols, and what it counts."""

from __future__ import annotations

import base64
import gc
import io
import json
import os
import socket
import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from edgekit.serve.inference_requests import RequestReader, body_limit_bytes
from edgekit.serve.request_memory import (
    LEAST_BYTES,
    SMALL_BYTES,
    RequestMemory,
    RequestMemoryError,
    ServingLimits,
    default_budget_bytes,
    parsed_bytes,
)
from edgekit.tensor_spec import TensorSpec
from tests.fixtures.classifiers import vectors
from tests.fixtures.servers import Running, running
from tests.fixtures.threads import until

pytestmark = pytest.mark.needs_ort
TENSOR = {"name": "x", "shape": [1, 3, 1, 2], "datatype": "FP32", "data": vectors(1)[0]["x"].ravel().tolist()}
ASK = json.dumps({"inputs": [TENSOR]}).encode()
MB = 1 << 20
PARSER = 13
"""orjson reserves 12 bytes for each of a text, of which it touches what its values need."""


@pytest.fixture
def server(bundle: Path) -> Iterator[Running]:
    with running({("net", "1"): bundle}, deadline_ms=30_000) as found:
        yield found


# --- the budget --------------------------------------------------------------------------------------------


def test_what_is_held_and_given_back() -> None:
    memory = RequestMemory(100 * MB)
    with memory.lease("192.0.2.1") as one, memory.lease("192.0.2.2") as other:
        one.hold(30 * MB)
        other.hold(20 * MB)
        one.hold(10 * MB)
        assert (memory.held_bytes, memory.peak_bytes) == (30 * MB, 50 * MB)
    assert (memory.held_bytes, memory._by_network) == (0, {})


def test_large_requests_leave_a_part_for_small_ones() -> None:
    memory = RequestMemory(100 * MB, share=1.0)
    large = [memory.lease() for _ in range(5)]
    for lease in large[:4]:
        lease.hold(18 * MB)
    with pytest.raises(RequestMemoryError) as error:
        large[4].hold(18 * MB)
    assert (str(error.value), error.value.status, error.value.retry_after_s) == (
        "requests hold 72 of 100 MB; retry in 1 s",
        503,
        1,
    )
    assert large[4].size_bytes == 0
    for _ in range(6):
        memory.lease().hold(SMALL_BYTES)


def test_an_address_has_a_share_and_its_only_request_all() -> None:
    memory = RequestMemory(100 * MB, share=0.5)
    first, second = memory.lease("192.0.2.1"), memory.lease("192.0.2.1")
    first.hold(70 * MB)
    first.hold(10 * MB)
    second.hold(20 * MB)
    with pytest.raises(RequestMemoryError) as error:
        second.hold(30 * MB)
    assert str(error.value) == (
        "requests of this address hold 30 MB, and all of an address may have 37 MB; retry in 1 s"
    )
    memory.lease("192.0.2.2").hold(30 * MB)  # others are not concerned
    proxied = RequestMemory(100 * MB, share=1.0)
    for _ in range(3):
        proxied.lease("192.0.2.1").hold(25 * MB)


def test_what_can_never_be_had_is_not_to_be_tried_again() -> None:
    with pytest.raises(RequestMemoryError) as error:
        RequestMemory(100 * MB).lease().hold(76 * MB)
    assert (error.value.status, error.value.retry_after_s) == (413, None)
    assert str(error.value) == (
        "this request needs 76 MB of the server's memory, and one may have 75 MB; send less in one request, "
        "or raise --request-memory-mb"
    )


def test_the_budget_is_a_part_of_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    from edgekit.serve import request_memory

    for free, budget in ((16 << 30, 4 << 30), (512 * MB, LEAST_BYTES), (1 << 50, LEAST_BYTES)):
        monkeypatch.setattr(request_memory, "free_memory_bytes", lambda free=free: free)
        assert default_budget_bytes() == budget
        assert default_budget_bytes(workers=4) == budget // 4
    assert ServingLimits() == ServingLimits(1024, 0.5, None)


# --- what requests take ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"[]," * 50_000 + b"[]]",
        b"[" + b"{}," * 50_000 + b"{}]",
        b"[" + b'{"a":{}},' * 30_000 + b"{}]",
        b"[" + b'"",' * 50_000 + b'""]',
        b"[" + b'"ab",' * 50_000 + b'""]',
        b"[" + b"1e1," * 50_000 + b"1]",
        b"[" + b"0.12345678," * 50_000 + b"1]",
        b'["' + b"a" * 200_000 + '\U0001f600"]'.encode(),
        b"{" + b",".join(b'"%d":1' % n for n in range(30_000)) + b"}",
    ],
    ids=["lists", "objects", "nested", "texts", "short", "small", "numbers", "wide", "keys"],
)
def test_json_takes_no_more_than_is_held_for_it(body: bytes) -> None:
    orjson.loads(b"[1]")
    tracemalloc.start()
    try:
        found = orjson.loads(body)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found
    held = parsed_bytes(body)
    assert taken + len(body) < held


@pytest.mark.parametrize("data", [["a" * 20_000, *[""] * 2_000], [["a" * 20_000], *[[""]] * 2_000]])
def test_texts_as_data_take_no_more_than_they_have(data: Any) -> None:
    body = json.dumps({"inputs": [{**TENSOR, "data": data}]}).encode()
    read = RequestReader([TensorSpec("x", "float32", (1, 3, 1, 2))], [])
    tracemalloc.start()
    try:
        with pytest.raises(Exception, match="data of input x are 2001 texts; 6 of FP32 are needed"):
            read(body, None)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - PARSER * len(body) < parsed_bytes(body)  # numpy's texts took 160 MB


def test_a_tensor_in_json_takes_no_more_than_is_held_for_it() -> None:
    spec = TensorSpec("x", "float32", (1, 3, 224, 224))
    values = np.random.default_rng(1).normal(0, 1, spec.shape).astype(np.float32)
    body = json.dumps(
        {"inputs": [{**TENSOR, "shape": list(spec.shape), "data": values.ravel().tolist()}]}
    ).encode()
    read = RequestReader([spec], [])
    read(body, None)
    tracemalloc.start()
    try:
        asked = read(body, None)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert np.array_equal(asked.feeds["x"], values)
    assert peak + len(body) - PARSER * len(body) < parsed_bytes(body)


def test_honest_requests_fit_into_the_least_budget() -> None:
    """One that is alone: a detector's 3 x 640 x 640 in JSON, and a photograph of 12 million pixels."""
    memory = RequestMemory(LEAST_BYTES)
    values = 3 * 640 * 640
    body = b"[" + b"0.50196078," * values + b"1]"
    assert len(body) < body_limit_bytes([TensorSpec("x", "float32", (1, 3, 640, 640))])
    pictures = pytest.importorskip("edgekit.serve.pictures", reason="Starlette is not installed")
    for size in (parsed_bytes(body) + len(body), pictures.DECODED_BYTES * 12_000_000 + (8 << 20)):
        with memory.lease("192.0.2.1") as lease:
            lease.hold(size)


# --- each protocol -----------------------------------------------------------------------------------------


def test_bodies_over_http(server: Running) -> None:
    memory = server.app.memory
    assert server.ask("POST", "/v2/models/net/infer", ASK)[0] == 200
    assert (memory.held_bytes, memory.peak_bytes > len(ASK)) == (0, True)
    large = json.dumps({"inputs": [{**TENSOR, "data": [1] * 60_000}]}).encode()
    memory.limit_bytes = 4 * parsed_bytes(large) // 3 - 1000
    status, _, told = server.ask("POST", "/v2/models/net/infer", large)
    assert (status, "send less in one request" in json.loads(told)["error"]) in ((413, True), (400, False))
    memory.limit_bytes = parsed_bytes(large) // 2
    assert server.ask("POST", "/v2/models/net/infer", large)[0] == 413
    lease = memory.lease("192.0.2.9")
    lease.hold(memory.limit_bytes - 100)
    status, headers, told = server.ask("POST", "/v2/models/net/infer", ASK)
    assert (status, headers["retry-after"]) == (503, "1")
    assert json.loads(told)["error"].endswith("MB; retry in 1 s")
    lease.close()
    assert server.ask("POST", "/v2/models/net/infer", ASK)[0] == 200
    assert memory.held_bytes == 0


def test_bodies_that_do_not_end_keep_nobody_out(server: Running) -> None:
    """More of them than requests may be answered at once, which are counted from their end on."""
    memory = server.app.memory
    head = b"POST /v2/models/net/%s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 30000000\r\n\r\n"
    with ExitStack() as stack:
        for number in range(300):
            wire = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=30))
            wire.sendall(head % (b"infer", b"predict")[number % 2] + b"{" * 1000)
        until(lambda: memory.held_bytes >= 300 * 1000)
        for _ in range(20):
            assert server.ask("POST", "/v2/models/net/infer", ASK)[0] == 200
    until(lambda: memory.held_bytes == 0)


def test_pictures_of_clients_that_send_them_at_once(server: Running) -> None:
    memory = server.app.memory
    memory.limit_bytes = 16 * MB
    head = b"POST /v2/models/net/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 8000000\r\n\r\n"
    with ExitStack() as stack:
        wires = []
        for _ in range(20):
            wire = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=30))
            wires.append(wire)
            wire.sendall(head)
            try:
                wire.sendall(b"\xff" * 3_000_000)
            except OSError:  # it was refused meanwhile
                continue
        assert server.ask("POST", "/v2/models/net/infer", ASK)[0] == 200
        assert 6_000_000 < memory.peak_bytes <= 16 * MB
    until(lambda: memory.held_bytes == 0)


def test_a_picture_is_decoded_within_the_budget(server: Running) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    file = io.BytesIO()
    image.new("RGB", (4000, 2000)).save(file, "PNG")  # 8 million pixels in some KB
    memory = server.app.memory
    assert server.ask("POST", "/v2/models/net/predict", file.getvalue())[0] == 200
    assert (memory.held_bytes, memory.peak_bytes >= 100_000_000) == (0, True)
    memory.limit_bytes = 64 * MB
    status, _, told = server.ask("POST", "/v2/models/net/predict", file.getvalue())
    assert (status, "this request needs 1" in json.loads(told)["error"]) == (413, True)


# --- WebSocket ---------------------------------------------------------------------------------------------


def websocket(server: Running, extensions: str = "permessage-deflate") -> tuple[socket.socket, bytes]:
    wire = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    key = base64.b64encode(os.urandom(16)).decode()
    wire.sendall(
        f"GET /v2/models/net/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        "Upgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Extensions: {extensions}\r\n\r\n".encode()
    )
    return wire, wire.recv(4096)


def frame(content: bytes, kind: int = 0x82, size: int | None = None) -> bytes:
    """A frame with a mask of zeros; ``size``: what it says its length is."""
    return (
        bytes([kind, 0x80 | 127])
        + struct.pack(">Q", len(content) if size is None else size)
        + bytes(4)
        + content
    )


def read_until_closed(wire: socket.socket) -> bytes:
    received = b""
    try:
        while more := wire.recv(4096):
            received += more
    except ConnectionResetError:
        pass
    return received


def test_websockets_do_not_compress(server: Running) -> None:
    wire, head = websocket(server)
    with wire:
        assert head.startswith(b"HTTP/1.1 101")
        assert b"permessage-deflate" not in head.lower()


def test_a_message_is_held_as_long_as_it_takes_memory(server: Running) -> None:
    memory = server.app.memory
    wire, _ = websocket(server)
    with wire:
        wire.sendall(frame(bytes(3_000_000), size=4_000_000))
        until(lambda: memory.held_bytes >= 6_000_000)
        wire.sendall(bytes(1_000_000))
        assert b'"status":400' in wire.recv(4096)  # it is no picture
        until(lambda: memory.held_bytes == 0)
        for _ in range(3):
            wire.sendall(frame(b"no picture"))
            assert b'"status":400' in wire.recv(4096)
        wire.sendall(frame(b"", 0x89))  # a ping
        assert wire.recv(4096)[:1] == b"\x8a"
        assert memory.held_bytes == 0
        wire.sendall(frame(bytes(3_000_000), size=4_000_000))
        until(lambda: memory.held_bytes >= 6_000_000)
    until(lambda: memory.held_bytes == 0)


def test_the_memory_of_a_lost_connection_waits_for_no_collection(server: Running) -> None:
    from edgekit.serve.websocket_protocol import WebSocketProtocol

    memory = server.app.memory
    gc.collect()
    gc.disable()
    try:
        wire, _ = websocket(server)
        with wire:
            wire.sendall(frame(bytes(3_000_000), size=4_000_000))
            until(lambda: memory.held_bytes >= 6_000_000)
            (lost,) = (each for each in gc.get_objects() if isinstance(each, WebSocketProtocol))
            conn: Any = lost.conn
            assert len(conn.reader.buffer) >= 3_000_000
        until(lambda: memory.held_bytes == 0)
        assert (len(conn.reader.buffer), lost.frames) == (0, [])
    finally:
        gc.enable()


def test_messages_beyond_the_budget_end_their_connection(server: Running) -> None:
    server.app.memory.limit_bytes = 8 * MB
    wire, _ = websocket(server)
    with wire:
        with suppress(OSError):
            wire.sendall(frame(bytes(16_000_000)))
        told = read_until_closed(wire)
    assert told == b"" or b"this request needs" in told
    until(lambda: server.app.memory.held_bytes == 0)
    assert server.app.memory.peak_bytes <= 8 * MB


def test_a_message_of_many_frames_and_a_long_text(server: Running) -> None:
    from edgekit.serve.websocket_protocol import FRAMES

    wire, _ = websocket(server)
    with wire:
        wire.sendall(frame(b"x" * 1_000_000, 0x81))
        assert b"send each picture as a binary message" in wire.recv(4096)
        wire.sendall(frame(b"", 0x02) + frame(b"", 0x00) * (FRAMES - 2) + frame(b"", 0x80))
        assert b'"status":400' in wire.recv(4096)
        wire.sendall(frame(b"", 0x02) + frame(b"", 0x00) * FRAMES)
        assert b"a message has at most 4096 frames" in read_until_closed(wire)


def test_pings_whose_answers_are_never_read(server: Running) -> None:
    config: Any = server.server.config
    wire, _ = websocket(server)
    with wire:
        wire.settimeout(20)
        try:
            for _ in range(2000):
                wire.sendall(frame(bytes(125), 0x89) * 500)
        except OSError:
            pass
        until(lambda: len(config.open_connections) == 0)


def test_a_session_that_is_idle_is_kept(server: Running) -> None:
    config: Any = server.server.config
    wire, _ = websocket(server)
    with wire:
        until(lambda: len(config.open_connections) == 1)
        assert not any(config.open_connections._waiting.values())  # nobody's connection makes it go
        wire.sendall(frame(b"no picture"))
        assert b'"status":400' in wire.recv(4096)
