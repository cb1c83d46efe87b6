"""A server for Frigate's ``zmq`` detector: frames while a worker is killed or hangs, attacks, and options.

EDGEKIT_FRIGATE names a checkout of Frigate's source, whose own class is then a client too.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgekit
from edgekit.errors import UsageError
from edgekit.processing.predictions.detect import Detections
from edgekit.runtime import Session
from edgekit.serve.frigate import server as frigate
from edgekit.serve.frigate.messages import (
    MODEL_ANSWER,
    TRANSFER_ANSWER,
    classes_of,
    image_of,
    is_valid,
    read_request,
    rows_of,
)
from edgekit.serve.frigate.worker import Worker
from edgekit.serve.serve_request import ServeRequest
from edgekit.system.memory import resident_bytes
from edgekit.tensor_spec import Array
from tests.fixtures.classifiers import classifiers
from tests.fixtures.detector import detector, detector_card
from tests.fixtures.frigate import frigates_client

zmq = pytest.importorskip("zmq", reason="pyzmq is not installed (the extra frigate)")
pytestmark = [pytest.mark.needs_ort, pytest.mark.skipif(sys.platform != "linux", reason="needs memfd_create")]
SIZE, FRAMES = 64, 6


class PlainClient:
    """The exchange of Frigate's class, where that is absent."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._connect()
        assert self.ask({"model_request": True, "model_name": "net.onnx"}) == MODEL_ANSWER

    def _connect(self) -> None:
        self.socket = zmq.Context.instance().socket(zmq.REQ)
        self.socket.linger, self.socket.rcvtimeo = 0, 200
        self.socket.connect(self.endpoint)

    def ask(self, head: Any, *tensor: bytes) -> bytes:
        self.socket.send_multipart([json.dumps(head).encode(), *tensor])
        (answer,) = self.socket.recv_multipart()
        return bytes(answer)

    def detect_raw(self, frame: Array) -> Array:
        try:
            rows = self.ask({"shape": frame.shape, "dtype": str(frame.dtype)}, frame.tobytes())
        except zmq.Again:
            self.socket.close(0)
            self._connect()
            return np.zeros((20, 6), np.float32)
        return np.frombuffer(rows, np.float32).reshape(20, 6)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("detector")
    net = edgekit.build(detector(folder / "net.onnx"), targets=["ort"], card=detector_card(SIZE))
    return Path(net.save(folder / "net.edgekit"))


@pytest.fixture(scope="module")
def frames() -> list[Array]:
    return list(np.random.default_rng(1).integers(0, 255, (FRAMES, 1, SIZE, SIZE, 3), np.uint8))


@pytest.fixture
def server(bundle: Path, tmp_path: Path) -> Iterator[frigate.FrigateServer]:
    options = {
        "bundle": str(bundle), "engine": None, "device": "cpu", "threads": 1, "order": "rgb",
        "classes": {0: 0, 1: 1}, "size": (SIZE, SIZE),
    }  # fmt: skip
    announced = threading.Event()
    with frigate.FrigateServer(f"ipc://{tmp_path}/socket", options) as opened:
        thread = threading.Thread(target=opened.run, args=(lambda *_: announced.set(), "net"))
        thread.start()
        try:
            assert announced.wait(60)
            yield opened
        finally:
            opened.end()
            thread.join()


def detected(client: Any, frames: list[Array], expected: list[bytes], count: int) -> tuple[int, float]:
    """Return the number of frames without objects, and the slowest call. Any other result must be right."""
    empty, slowest_s = 0, 0.0
    for number in range(count):
        begun_s = time.monotonic()
        rows = client.detect_raw(frames[number % FRAMES])
        slowest_s = max(slowest_s, time.monotonic() - begun_s)
        if rows.any():
            assert rows.tobytes() == expected[number % FRAMES], f"frame {number} has another one's rows"
        empty += not rows.any()
    return empty, slowest_s


@pytest.mark.parametrize("kind", ["plain", "frigate"])
def test_frames_are_answered_while_a_worker_is_killed_or_hangs(
    kind: str, server: frigate.FrigateServer, bundle: Path, frames: list[Array], tmp_path: Path
) -> None:
    """On a quiet machine no result is empty and the slowest call takes 150 ms; a busy one is given more."""
    with Session[Detections](bundle) as session:
        found = [session.predict(frame[0]) for frame in frames]
    expected = [rows_of(detections, SIZE, SIZE, {0: 0, 1: 1}) for detections in found]
    client: Any = PlainClient(server.endpoint)
    if kind == "frigate":
        client = frigates_client(server.endpoint, tmp_path)
        if client is None:
            pytest.skip("Frigate's source is absent (EDGEKIT_FRIGATE)")
    assert detected(client, frames, expected, 20)[0] < 5
    killed, hung = server.first.pid, 0
    os.kill(killed, signal.SIGKILL)
    empty, slowest_s = detected(client, frames, expected, 40)
    assert (empty < 10, slowest_s < 0.5) == (True, True)
    assert server.counts["by the reserve"] > 20
    deadline_s = time.monotonic() + 60
    while server.first.active is None and time.monotonic() < deadline_s:
        detected(client, frames, expected, 1)
        time.sleep(0.05)
    hung = server.first.pid
    assert hung not in (0, killed)
    os.kill(hung, signal.SIGSTOP)
    empty, slowest_s = detected(client, frames, expected, 40)
    assert (empty < 10, slowest_s < 0.5) == (True, True)
    dropped = server.counts["dropped"]
    os.kill(hung, signal.SIGCONT)
    time.sleep(0.3)
    assert detected(client, frames, expected, 20)[0] < 5
    assert server.counts["dropped"] > dropped


def test_a_worker_that_rests_stands_in(server: frigate.FrigateServer, frames: list[Array]) -> None:
    client = PlainClient(server.endpoint)
    client.detect_raw(frames[0])
    server.first.rests_until_s = time.monotonic() + 60
    assert client.detect_raw(frames[0]).any()
    assert server.counts["by the reserve"] == 1
    os.kill(server.reserve.pid, signal.SIGSTOP)
    before = server.counts["by the first worker"]
    for number in range(20):
        client.detect_raw(frames[number % FRAMES])
    assert server.counts["by the first worker"] > before + 10


def test_a_worker_that_has_served_is_started_again_at_once(
    server: frigate.FrigateServer, frames: list[Array]
) -> None:
    client = PlainClient(server.endpoint)
    client.detect_raw(frames[0])
    server.first._pause_s, server.first._failed_s = 30.0, time.monotonic()  # as after several failures
    os.kill(server.first.pid, signal.SIGKILL)
    deadline_s = time.monotonic() + 30
    while server.first.rests_until_s == 0 or server.first.active is None:
        assert time.monotonic() < deadline_s
        client.detect_raw(frames[0])
    assert server.first.rests_until_s > time.monotonic() + 20


def test_how_long_a_frame_is_waited_for() -> None:
    worker = Worker("first worker", {})
    assert worker.expected_s(0.1) == 0
    worker.number, worker.sent_s = 1, 10.0
    assert worker.expected_s(0.1) == 10.1  # nothing is known yet
    for took_s, expected_s in ((0.001, 10.02), (0.04, 10.06), (0.2, 10.1)):
        worker.took_s = took_s
        assert worker.expected_s(0.1) == pytest.approx(expected_s)
    worker.close()


def greeted(path: str) -> socket.socket:
    """Return a connection after ZeroMQ's handshake, which then sends what it likes."""
    link = socket.socket(socket.AF_UNIX)
    link.settimeout(5)
    link.connect(path)
    link.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32))
    body = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
    link.sendall(b"\x04" + bytes([len(body)]) + body)
    time.sleep(0.1)
    link.recv(4096)
    return link


def test_an_endless_message_is_dropped(server: frigate.FrigateServer) -> None:
    before_bytes, part = resident_bytes(), b"\x03" + struct.pack(">Q", 1 << 20) + bytes(1 << 20)
    for attacks in (1, 2, 3):
        taken = 0
        with greeted(server.endpoint.removeprefix("ipc://")) as link, contextlib.suppress(ConnectionError):
            for _ in range(500):
                link.sendall(part)
                taken += 1
        assert taken < 500
        assert resident_bytes() < before_bytes + (250 << 20)
        client = PlainClient(server.endpoint)
        for _ in range(30):  # the next clients stay: freed memory that the allocator keeps is not theirs
            assert client.ask({"model_data": True}, b"model") == TRANSFER_ANSWER
            time.sleep(0.01)
        assert server.counts["dropped connections"] == attacks


@pytest.mark.parametrize(
    ("head", "tensor"),
    [
        (b"[1]", b""), (b"{}", b""), (b"[" * 1000, b""), (b"x" * 2000, b""), (b"\xff", b""),
        (b'{"shape": [1, 4, 4, 3], "dtype": "uint8"}', b"short"),
        (b'{"shape": [1, 1, 1, 3], "dtype": "O"}', b"abc"),
        (b'{"shape": [1, -1, 1, 3], "dtype": "uint8"}', b""),
        (b'{"shape": [true, 1, 1, 3], "dtype": "uint8"}', b"abc"),
        (b'{"shape": [1, 1e9, 1, 3], "dtype": "uint8"}', b""), (b'{"shape": [3], "dtype": "uint8"}', b"abc"),
    ],
)  # fmt: skip
def test_malformed_requests(head: bytes, tensor: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_request([memoryview(head), memoryview(tensor)])


def test_layouts_and_rows() -> None:
    image = np.random.default_rng(0).integers(0, 255, (5, 5, 3), np.uint8)
    nhwc = image[None]
    for tensor in (nhwc, nhwc.transpose(0, 3, 1, 2), nhwc.transpose(1, 2, 0, 3), nhwc.transpose(1, 2, 3, 0)):
        for sent in (tensor, tensor.astype(np.float32), tensor.astype(np.float32) / 255):
            assert np.array_equal(image_of(sent), image)
    boxes = np.array([[1, 2, 3, 4], [0, 0, 20, 10], [0, 0, np.nan, 1], [0, 0, 1, 1]], np.float32)
    scores = np.array([0.9, 0.8, 0.7, 0.6], np.float32)
    rows = rows_of(Detections(boxes, scores, np.array([1, 0, 1, 2])), 10, 10, {0: 5, 1: 1})
    assert is_valid(rows)
    assert np.allclose(
        np.frombuffer(rows, np.float32).reshape(20, 6)[:3],
        np.array([[1, 0.9, 0.2, 0.1, 0.4, 0.3], [5, 0.8, 0, 0, 1, 1], [0] * 6]),
    )


def test_classes_of_a_label_map(tmp_path: Path) -> None:
    assert classes_of(["a", "b"], None) == {0: 0, 1: 1}
    assert max(classes_of([str(n) for n in range(365)], None)) == 90
    (tmp_path / "map").write_text("0 dog\n16 cat\n")
    assert classes_of(["cat", "bird", "dog"], tmp_path / "map") == {0: 16, 2: 0}
    (tmp_path / "plain").write_text("dog\ncat\n")
    assert classes_of(["cat"], tmp_path / "plain") == {0: 1}
    with pytest.raises(UsageError, match="has none of the model's labels"):
        classes_of(["bird"], tmp_path / "map")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"pixel_format": None}, "--frigate needs --pixel-format rgb or bgr"),
        ({"frigate": "ipc://socket"}, "it must be ipc:///PATH or tcp://HOST:PORT"),
        ({"frigate": "tcp://0.0.0.0:5555"}, "lets other machines in"),
        ({"frigate": "ipc:///no/such/socket"}, "the folder /no/such does not exist"),
        ({"listen": ":80"}, "--listen does not go with --frigate"),
        ({"bundles": ["a", "b"]}, "--frigate serves one bundle; give one"),
    ],
)
def test_options_that_are_refused(given: dict[str, Any], said: str, bundle: Path) -> None:
    request: dict[str, Any] = {
        "bundles": [str(bundle)], "frigate": "tcp://127.0.0.1:0", "pixel_format": "rgb", **given
    }  # fmt: skip
    with pytest.raises(UsageError, match=said):
        frigate.serve_frigate(ServeRequest(request.pop("bundles"), **request))


def test_what_is_in_the_way_is_not_removed(tmp_path: Path, bundle: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(UsageError, match="exists, and is not a socket"):
        frigate.endpoint_of(f"ipc://{file}", False)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "socket"))
        assert frigate.endpoint_of(f"ipc://{tmp_path}/socket", False)  # an old one, of a server that died
        other.listen()
        with pytest.raises(UsageError, match="another process listens"):
            frigate.endpoint_of(f"ipc://{tmp_path}/socket", False)
    classifier = str(classifiers(tmp_path)[0])
    with pytest.raises(UsageError, match="card"):
        frigate.serve_frigate(ServeRequest([classifier], frigate="tcp://127.0.0.1:0", pixel_format="rgb"))
