"""A folder and a server as sinks: what delivers, what refuses a row, what says that nobody is there."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from edgekit.errors import UsageError
from edgekit.runtime.outbox.outbox import Outbox
from edgekit.runtime.outbox.rows import Parcel
from edgekit.runtime.outbox.sinks import FolderSink, HttpSink, RowRefusedError, SinkDownError

ROW = Parcel("key-1", "result", b'{"people": 3}', 0.0)


class Backend(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.statuses: list[int] = []
        self.rows: list[tuple[str, str, bytes]] = []
        self.connections = self.closed = 0
        self.drops_after_answer = False

    def get_request(self) -> Any:
        self.connections += 1
        return super().get_request()

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self.closed += 1

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/rows"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Backend

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.rows.append((self.headers["Idempotency-Key"], self.headers["EdgeKit-Kind"], body))
        status = self.server.statuses.pop(0) if self.server.statuses else 204
        if status == 0:
            time.sleep(0.5)
        self.send_response(status or 200)
        if status == 503:
            self.send_header("Retry-After", "7")
        if status != 204:
            self.send_header("Content-Length", "0")
        self.end_headers()
        self.close_connection = self.server.drops_after_answer  # without a word about it

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Silence."""


@pytest.fixture
def backend() -> Iterator[Backend]:
    with Backend() as backend:
        threading.Thread(target=backend.serve_forever, daemon=True).start()
        yield backend
        backend.shutdown()


def test_a_server_gets_the_row_its_key_and_its_kind_over_one_connection(backend: Backend) -> None:
    sink = HttpSink(backend.url)
    for _ in range(3):
        sink.send(ROW)
    sink.close()
    assert backend.rows == [("key-1", "result", ROW.body)] * 3
    assert backend.connections == 1


@pytest.mark.parametrize("status", [200, 201, 204, 409])
def test_these_deliver(backend: Backend, status: int) -> None:
    backend.statuses = [status]
    HttpSink(backend.url).send(ROW)


@pytest.mark.parametrize(
    ("status", "problem", "retry_after_s"),
    [
        (400, RowRefusedError, None),
        (413, RowRefusedError, None),
        (422, RowRefusedError, None),
        (301, SinkDownError, None),
        (401, SinkDownError, None),
        (404, SinkDownError, None),
        (429, SinkDownError, None),
        (503, SinkDownError, 7.0),
        (500, OSError, None),
        (502, OSError, None),
    ],
)
def test_these_do_not(
    backend: Backend, status: int, problem: type[Exception], retry_after_s: float | None
) -> None:
    backend.statuses = [status]
    with pytest.raises(problem) as error:
        HttpSink(backend.url).send(ROW)
    assert str(error.value) == f"{backend.url} answered {status}"
    assert getattr(error.value, "retry_after_s", None) == retry_after_s


def test_a_connection_that_the_server_closed_while_idle_is_no_fault_of_the_row(backend: Backend) -> None:
    backend.drops_after_answer = True
    sink = HttpSink(backend.url)
    for number in range(1, 4):
        sink.send(ROW)
        while backend.closed < number:
            time.sleep(0.001)
    assert backend.connections == 3


def test_nobody_there_is_down_and_a_server_that_hangs_is_doubt(backend: Backend) -> None:
    backend.statuses = [0]
    with pytest.raises(Exception, match="no response in time") as error:
        HttpSink(backend.url, timeout_s=0.1).send(ROW)
    assert not isinstance(error.value, (SinkDownError, RowRefusedError))
    with pytest.raises(SinkDownError, match=r"http://127\.0\.0\.1:1/rows: ConnectionRefusedError"):
        HttpSink("http://127.0.0.1:1/rows").send(ROW)


def test_an_outbox_over_a_backend_with_moods_delivers_all(tmp_path: Path, backend: Backend) -> None:
    backend.statuses = [500, 204, 503, 204, 400, 204, 500, 500, 204]
    sink = HttpSink(backend.url)
    with Outbox(tmp_path, commit_s=0.0) as outbox:
        for number in range(20):
            outbox.put(b"%d" % number, key=f"k{number}")
        assert outbox.flush(20)
        for _ in range(40):
            outbox.deliver(sink)
        assert (outbox.counts()["waiting"], outbox.counts()["delivered"]) == (0, 20)
    assert {(key, body) for key, _, body in backend.rows} == {(f"k{n}", b"%d" % n) for n in range(20)}


def test_a_folder_gets_whole_files_once(tmp_path: Path) -> None:
    sink = FolderSink(tmp_path / "out", ".json")
    sink.send(ROW)
    path = tmp_path / "out" / "result-key-1.json"
    assert path.read_bytes() == ROW.body
    written = path.stat().st_mtime_ns
    sink.send(ROW)
    assert path.stat().st_mtime_ns == written
    assert [p.name for p in path.parent.iterdir()] == ["result-key-1.json"]
    sink.close()


def test_a_folder_that_cannot_be_is_down(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SinkDownError, match=r"file: File exists"):
        FolderSink(tmp_path / "file").send(ROW)
    with pytest.raises(UsageError, match=r"'\./x' is not a file suffix, e\.g\. \.json"):
        FolderSink(tmp_path, "./x")
