"""What a server sends is bounded before it is parsed: the device answers in time, the memory stays small."""

from __future__ import annotations

import json
import socket
import threading
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from edgekit.bundle import Bundle
from edgekit.runtime.http_connection import ConnectionFailedError, HttpConnection, Reply
from edgekit.runtime.remote.inference_protocol import (
    HEAD_LIMIT_BYTES,
    JSON_VALUES,
    AnswerError,
    Client,
    answer_of,
    json_limits,
)
from edgekit.tensor_spec import Signature, TensorSpec
from tests.fixtures.bundles import small_manifest
from tests.fixtures.child_processes import run_python
from tests.fixtures.ort_bundles import onnx_bytes

ROOT = Path(__file__).parents[3]
VALUES = 850_002
TILES = f"""
<ir_version: 8, opset_import: ["": 17]>
tiles (float[1,6] x) => (float[1,{VALUES}] y)
<int64[2] times = {{1, {VALUES // 6}}}> {{ y = Tile(x, times) }}
"""
APP = """
import json, sys, time
from pathlib import Path
import numpy as np
from edgekit.runtime import Session
from edgekit.runtime.remote.remote_session import RemoteSession

path, url = sys.argv[1:]
feeds = {"x": np.ones((1, 6), np.float32)}
def peak_mb():
    status = Path("/proc/self/status")  # getrusage's is the parent's where that had more
    lines = status.read_text().splitlines() if status.exists() else ["VmHWM: 0 kB"]
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024
with Session(path, threads=1) as session:
    for _ in range(3):
        session.run(feeds)
    with RemoteSession(session, url, "m", policy="remote-first", deadline_ms=300) as both:
        while both.status()["server"] == "probing":
            time.sleep(0.002)
        both._local.add(0.005)  # as if it had run here before: else the first request asks both at once
        before = peak_mb()
        answer = both.run(feeds)
        right = bool((answer["y"] == 1).all())
        while not both.status()["why"]:  # what the server sent is dealt with to the end
            time.sleep(0.002)
        print(json.dumps([answer.path, answer.reason, right, peak_mb() - before]))
"""


def serve(replies: dict[str, bytes]) -> tuple[socket.socket, str]:
    """A server that sends what it is given, in this process; closing the socket ends it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def talk(plain: socket.socket) -> None:
        with plain, plain.makefile("rb") as file:
            while first := file.readline():
                path, length = first.split()[1].decode(), 0
                while (line := file.readline().strip().lower()) != b"":
                    if line.startswith(b"content-length:"):
                        length = int(line.partition(b":")[2])
                file.read(length)
                try:
                    plain.sendall(replies[path.rpartition("/")[2]])
                except OSError:
                    return

    def accept() -> None:
        while True:
            try:
                plain, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=talk, args=(plain,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener, f"http://127.0.0.1:{listener.getsockname()[1]}"


def http(content: bytes, length: bool = True) -> bytes:
    extra = f"Content-Length: {len(content)}" if length else "Connection: close"
    return f"HTTP/1.1 200 OK\r\n{extra}\r\n\r\n".encode() + content


ABOUT = {
    "ready": http(b""),
    "v2": http(json.dumps({"name": "s", "extensions": ["binary_tensor_data"]}).encode()),
    "m": http(b'{"name": "m"}'),
}


def objects() -> bytes:
    """27 MB; parsed, they are 9 million dicts."""
    head = b'{"outputs":[{"name":"y","datatype":"FP32","shape":[1,%d],"data":[' % VALUES
    return head + b",".join([b"{}"] * 9_000_000) + b"]}]}"


@pytest.mark.needs_ort
@pytest.mark.parametrize("length", [True, False], ids=["by its length", "until it closes"])
def test_27_mb_of_json_objects_are_not_parsed(length: bool, tmp_path: Path) -> None:
    """Parsed, they took seconds of a deadline of 300 ms, and 826 MB."""
    manifest = small_manifest()
    outputs = [{"name": "y", "dtype": "float32", "shape": [1, VALUES]}]
    variant = {**manifest["variants"][0], "files": {"model.onnx": "model.onnx"}}
    bundle = Bundle.create(
        {**manifest, "outputs": outputs, "variants": [variant], "golden": []},
        {"model.onnx": onnx_bytes(TILES)},
    )
    path = bundle.save(tmp_path / "b.edgekit")
    listener, url = serve({**ABOUT, "infer": http(objects(), length)})
    with listener:
        done = run_python(APP, path, url, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    by, why, right, grown_mb = json.loads(done.stdout)
    assert (by, right) == ("local", True)
    assert why.startswith("the server ")
    assert grown_mb < 100


Y = (TensorSpec("y", "float32", (1, JSON_VALUES)),)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (
            b"[" + b",".join([b"{}"] * 800_000) + b"]",
            "its response has about 1600000 values of JSON; the limit is 60004",
        ),
        (b'{"a":[' * 40_000, "its response has about 80000 values of JSON; the limit is 60004"),
        (b" " * 2_648_577, "its response has 2648577 bytes of JSON; the limit is 2648576"),
        (b"[" + b"1" * 2_000_000 + b"]", "its response is not JSON: a number of 40 digits or more"),
    ],
    ids=["objects", "nested", "bytes", "digits"],
)
def test_what_cannot_be_the_answer_is_not_parsed(body: bytes, why: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(AnswerError) as error:
            answer_of(Reply(200, {}, body), Y)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert str(error.value).startswith(why)
    assert peak_bytes < 1 << 20


@pytest.mark.parametrize("shape", [(JSON_VALUES,), (10, 5, 1000), (1, JSON_VALUES, 1, 1), (), (0, 3)])
@pytest.mark.parametrize("nested", [False, True])
def test_the_largest_answer_in_json_is_taken_flat_and_nested(shape: tuple[int, ...], nested: bool) -> None:
    y = TensorSpec("y", "float32", shape)
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32) * np.float32(1e-30)
    data = values.tolist() if nested else values.reshape(-1).tolist()
    said = {"outputs": [{"name": "y", "datatype": "FP32", "shape": list(shape), "data": data}]}
    answer = answer_of(Reply(200, {}, json.dumps(said).encode()), [y])
    np.testing.assert_array_equal(answer["y"], values)


def test_beyond_what_is_quick_in_json_only_the_binary_form_is_taken() -> None:
    y = TensorSpec("y", "float32", (JSON_VALUES + 1,))
    assert json_limits([y]) == (HEAD_LIMIT_BYTES, 10_000)
    values = np.arange(JSON_VALUES + 1, dtype=np.float32)
    entry = {"name": "y", "datatype": "FP32", "shape": list(y.shape)}
    text = json.dumps({"outputs": [{**entry, "data": values.tolist()}]}).encode()
    with pytest.raises(
        AnswerError, match=r"^its response has about 50008 values of JSON; the limit is 10000$"
    ):
        answer_of(Reply(200, {}, text), [y])
    head = json.dumps({"outputs": [{**entry, "parameters": {"binary_data_size": values.nbytes}}]}).encode()
    reply = Reply(200, {"inference-header-content-length": str(len(head))}, head + values.tobytes())
    np.testing.assert_array_equal(answer_of(reply, [y])["y"], values)


@pytest.mark.parametrize(
    "about", ["v2", "m"], ids=["what the server says of itself", "what it says of the model"]
)
def test_what_a_server_says_of_itself_is_bounded_too(about: str) -> None:
    objects = http(b'{"extensions":[' + b",".join([b"{}"] * 300_000) + b"]}")
    listener, url = serve({**ABOUT, about: objects})
    with listener:
        client = Client(HttpConnection(url), "m", [Signature((), tuple(Y))])
        with pytest.raises(
            AnswerError, match=r"^its response has about 600001 values of JSON; the limit is 10000"
        ):
            client.check_server(time.monotonic() + 20)
        client.close()


def test_an_answer_that_is_too_long_by_its_own_word_is_not_read() -> None:
    declared = http(b"").replace(b"Content-Length: 0", b"Content-Length: 99999999999")
    listener, url = serve({**ABOUT, "infer": declared})  # and nothing follows: reading it would wait
    with listener:
        wire = HttpConnection(url)
        with pytest.raises(ConnectionFailedError) as error:
            wire.exchange("POST", "/v2/models/m/infer", time.monotonic() + 60, 1000)
        wire.close()
    assert str(error.value) == "the response exceeds 1000 bytes"


def test_what_a_server_sends_is_escaped_in_errors() -> None:
    """A status line is quoted by the standard library as it is, and errors go to logs and terminals."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(1 << 16)
                peer.sendall(b"\x1b[2J\x1b]0;mine\x07\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        connection = HttpConnection(f"http://127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(ConnectionFailedError) as error:
            connection.exchange("GET", "/v2", time.monotonic() + 30, 4096)
    assert str(error.value) == r"BadStatusLine: \x1b[2J\x1b]0;mine\x07"
    assert str(AnswerError("\x1b[2J")) == r"\x1b[2J"
