"""The memory for requests: one budget of all protocols, and what it counts."""

from __future__ import annotations

import io
import json
import socket
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack
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
    default_budget_bytes,
    parsed_bytes,
)
from edgekit.serve.service import IN_FLIGHT
from edgekit.tensor_spec import Signature, TensorSpec
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
        "the requests of this address hold 30 MB of memory; the limit of an address is 37 MB. Retry in 1 s"
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
        "this request needs 76 MB of memory; the limit of one request is 75 MB. Send less in one request, "
        "or raise --request-memory-mb"
    )


def test_the_budget_is_a_part_of_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    from edgekit.serve import request_memory

    for free, budget in ((16 << 30, 4 << 30), (512 * MB, LEAST_BYTES), (1 << 50, LEAST_BYTES)):
        monkeypatch.setattr(request_memory, "free_memory_bytes", lambda free=free: free)
        assert default_budget_bytes() == budget


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
    read = RequestReader([Signature((TensorSpec("x", "float32", (1, 3, 1, 2)),), ())])
    tracemalloc.start()
    try:
        with pytest.raises(Exception, match="the data of input x has 2001 texts; the model takes 6 of FP32"):
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
    read = RequestReader([Signature((spec,), ())])
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
    large = json.dumps({"inputs": [{**TENSOR, "data": [1] * 20_000}]}).encode()
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


@pytest.mark.parametrize("kind", [b"infer", b"predict"])
def test_bodies_that_do_not_end_keep_nobody_out(server: Running, kind: bytes) -> None:
    """More of them than requests may be answered at once, which are counted from their end on."""
    memory = server.app.memory
    head = b"POST /v2/models/net/%s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 500000\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(IN_FLIGHT + 44):
            wire = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=30))
            wire.sendall(head % kind + b"{" * 1000)
        until(lambda: memory.held_bytes >= 2000 * (IN_FLIGHT + 44))
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
