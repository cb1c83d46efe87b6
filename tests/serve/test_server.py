"""A real server on loopback: its answers, limits and errors, and what it does with what it accepted."""

from __future__ import annotations

import gc
import json
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgekit
from edgekit.bundle.bundle import Bundle
from edgekit.bundle.model_version import with_version
from edgekit.errors import UsageError
from edgekit.runtime import RemoteSession, Session
from edgekit.serve.model_entries import bundles_by_name
from edgekit.serve.served_model import ServedModel, ServeOptions
from edgekit.serve.served_models import ServedModels
from tests.fixtures.classifiers import vectors
from tests.fixtures.models import write
from tests.fixtures.servers import Running, app_of, held, running

pytestmark = pytest.mark.needs_ort

FEEDS = vectors(1)[0]
TENSOR = {"name": "x", "shape": [1, 3, 1, 2], "datatype": "FP32", "data": FEEDS["x"].ravel().tolist()}
ROWS = """
<ir_version: 8, opset_import: ["": 17]>
rows (float[N,4] x) => (float[N,4] y) { y = Relu(x) }
"""
GATHER = """
<ir_version: 8, opset_import: ["": 17]>
gather (int64[3] i) => (float[3] y) <float[4] table = {0, 1, 2, 3}> { y = Gather(table, i) }
"""
ASK = json.dumps({"inputs": [TENSOR]}).encode()


@pytest.fixture(scope="module")
def server(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Bundle.open(bundle) as opened:
        second = with_version(opened, 12).save(tmp_path_factory.mktemp("server") / "second.edgekit")
    with running({("net", "2"): bundle, ("net", "12"): second}) as found:
        yield found


def test_health_and_metadata(server: Running) -> None:
    assert server.get("/v2/health/live") == (200, {"live": True})
    assert server.get("/v2/health/ready") == (200, {"ready": True})
    extensions = ["binary_tensor_data", "model_repository", "model_configuration", "statistics"]
    assert server.get("/v2")[1]["extensions"] == extensions
    status, model = server.get("/v2/models/net")
    assert (status, model["versions"], model["name"]) == (200, ["2", "12"], "net")
    assert model["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [1, 3, 1, 2]}]
    assert model["outputs"] == [{"name": "scores", "datatype": "FP32", "shape": [1, 6]}]
    assert server.get("/v2/models/net/versions/2/ready") == (200, {"name": "net", "ready": True})
    assert {(m["name"], m["version"]) for m in json.loads(server.ask("POST", "/v2/repository/index")[2])} == {
        ("net", "2"),
        ("net", "12"),
    }


def test_inference_in_json(server: Running, bundle: Path) -> None:
    with Session(bundle) as session:
        expected = session.run(FEEDS)["scores"]
    status, headers, body = server.ask("POST", "/v2/models/net/infer", ASK)
    answer = json.loads(body)
    assert (status, headers["content-type"]) == (200, "application/json")
    assert (answer["model_name"], answer["model_version"]) == ("net", "12")
    assert np.array_equal(np.float32(answer["outputs"][0]["data"]), expected.ravel())
    older = server.ask("POST", "/v2/models/net/versions/2/infer", ASK)[2]
    assert json.loads(older)["model_version"] == "2"


@pytest.mark.parametrize("version", ["", "2"])
def test_our_own_client(server: Running, bundle: Path, version: str) -> None:
    with Session(bundle) as session:
        expected = session.run(FEEDS)["scores"]
        with RemoteSession(
            session, server.url, "net", policy="remote-first", deadline_ms=20_000, version=version
        ) as both:
            end = time.monotonic() + 30
            while both.status()["server"] != "closed" and time.monotonic() < end:
                both.run(FEEDS)
            answer = both.run(FEEDS)
            while answer.path != "remote" and time.monotonic() < end:  # the device may be sooner
                answer = both.run(FEEDS)
            assert answer.path == "remote", answer.reason
            assert np.array_equal(answer["scores"], expected)


def test_nvidias_client(server: Running) -> None:
    client = pytest.importorskip("tritonclient.http", reason="tritonclient[http] is not installed")
    from tests.serve.triton_check import check

    check(client, f"127.0.0.1:{server.port}", "net", FEEDS["x"])


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "told"),
    [
        ("GET", "/v2/models/nothing", None, 404, "there is no model 'nothing'; this server has net"),
        ("GET", "/v2/models/net/versions/7", None, 404, "net has no version '7'; it has 2, 12"),
        ("GET", "/nowhere", None, 404, "the path /nowhere does not exist"),
        ("GET", "/v2/models/net/infer", None, 405, "GET is not allowed for this path"),
        ("POST", "/v2/models/net/infer", b"{", 400, "the request is not JSON"),
        ("POST", "/v2/models/net/infer", b"{}", 400, "inputs must be a list of tensors"),
        ("POST", "/v2/models/net/infer", b" " * (2 << 20), 413, "the body is larger than this model's limit"),
    ],
)
def test_errors_are_the_protocols(
    server: Running, method: str, path: str, body: Any, status: int, told: str
) -> None:
    found, headers, content = server.ask(method, path, body)
    assert (found, headers["content-type"]) == (status, "application/json")
    assert told in json.loads(content)["error"]
    assert list(json.loads(content)) == ["error"]


def test_bodies_in_pieces_and_compressed(server: Running) -> None:
    status, _, content = server.ask("POST", "/v2/models/net/infer", iter([ASK[:50], ASK[50:]]))
    assert (status, "outputs" in json.loads(content)) == (200, True)
    endless = (b" " * (1 << 16) for _ in range(64))
    try:
        status, _, content = server.ask("POST", "/v2/models/net/infer", endless)
    except (BrokenPipeError, ConnectionResetError):  # it closed before all was sent
        pass
    else:
        assert status == 413
    status, _, content = server.ask("POST", "/v2/models/net/infer", ASK, {"Content-Encoding": "gzip"})
    assert (status, json.loads(content)["error"]) == (
        415,
        "the body is compressed; send it uncompressed",
    )


def test_other_hosts_names_are_refused(server: Running) -> None:
    """A web page's own name that points at 127.0.0.1."""
    status, _, content = server.ask("GET", "/v2", headers={"Host": "evil.example:80"})
    assert (status, "this server is for 127.0.0.1 only" in json.loads(content)["error"]) == (403, True)
    for host in ("localhost:1", "127.0.0.1", "[::1]:8"):
        assert server.ask("GET", "/v2", headers={"Host": host})[0] == 200


def test_inputs_that_are_no_numbers_are_the_clients_fault(server: Running) -> None:
    tensor = {"name": "x", "shape": [1, 3, 1, 2], "datatype": "FP32", "parameters": {"binary_data_size": 24}}
    start = json.dumps({"inputs": [tensor]}).encode()
    values = np.array([1, np.nan, 2, np.inf, 3, 4], np.float32)
    length = {"Inference-Header-Content-Length": str(len(start))}
    status, _, content = server.ask("POST", "/v2/models/net/infer", start + values.tobytes(), length)
    assert (status, json.loads(content)["error"]) == (
        400, ("input x contains NaN or infinities in 2 of 6 values, and the model's outputs are not "
"finite"),
    )  # fmt: skip
    values[:] = 1
    assert server.ask("POST", "/v2/models/net/infer", start + values.tobytes(), length)[0] == 200


def test_finite_inputs_whose_outputs_are_not_finite_are_the_clients_fault(server: Running) -> None:
    tensor = {"name": "x", "shape": [1, 3, 1, 2], "datatype": "FP32", "data": [3e38] * 6}
    for _ in range(3):  # the second and third are answered by the rule for inputs that are repeated
        status, _, content = server.ask("POST", "/v2/models/net/infer", json.dumps({"inputs": [tensor]}))
        assert (status, json.loads(content)["error"]) == (
            400, "the inputs are extreme, and the model's outputs are not finite",
        )  # fmt: skip
    assert server.ask("POST", "/v2/models/net/infer", ASK)[0] == 200


def test_inputs_that_the_engine_rejects_are_the_clients_fault(tmp_path: Path) -> None:
    """An index that Gather does not have; other clients' requests load nothing again."""
    samples = [{"i": np.array([0, 1, 3])}] * 4
    built = edgekit.build(write(tmp_path, GATHER, "gather.onnx"), targets=["ort"], samples=samples)
    built.save(tmp_path / "gather.edgekit")
    with running({("net", "1"): tmp_path / "gather.edgekit"}) as server:
        session, states = server.models.find("net", None).session, list[str]()

        def ask(last: int) -> tuple[int, Any]:
            tensor = {"name": "i", "shape": [3], "datatype": "INT64", "data": [0, 1, last]}
            status, _, body = server.ask("POST", "/v2/models/net/infer", json.dumps({"inputs": [tensor]}))
            return status, json.loads(body)

        session._chain._states._on_state = lambda state, _: states.append(state)
        for _ in range(5):
            assert ask(9) == (400, {"error": "the model fails on this input and computes others; check its "
                                    "values, e.g. that indices are in range"})  # fmt: skip
            status, answer = ask(3)
            assert (status, answer["outputs"][0]["data"]) == (200, [0, 1, 3])
        assert states.count("ready") == 1, "after the first only"
        assert session.active.variant == "ort-fp32"


def test_a_token(bundle: Path) -> None:
    access = app_of.Access(token="t" * 20, loopback=False)
    with running({("net", "1"): bundle}, access=access) as server:
        status, headers, content = server.ask("GET", "/v2/models/net")
        assert (status, headers["www-authenticate"]) == (401, "Bearer")
        assert "the token is missing or wrong" in json.loads(content)["error"]
        for said in ("Bearer x", "Bearer " + "t" * 21, "t" * 20, "Bearer \xff"):
            assert server.ask("POST", "/v2/models/net/infer", ASK, {"Authorization": said})[0] == 401
        good = {"Authorization": "Bearer " + "t" * 20, "Host": "box.example"}
        assert server.ask("POST", "/v2/models/net/infer", ASK, good)[0] == 200
        assert server.ask("GET", "/metrics")[0] == 401
        assert server.ask("GET", "/v2/health/live")[0] == 200  # for probes


def test_metrics_are_declared_once(server: Running) -> None:
    server.ask("POST", "/v2/models/net/infer", ASK)
    server.ask("POST", "/v2/models/net/versions/2/infer", ASK)
    status, headers, content = server.ask("GET", "/metrics")
    lines = content.decode().splitlines()
    assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    declared = [line for line in lines if line.startswith("#")]
    assert len(declared) == len(set(declared))
    for version in ("2", "12"):
        labels = f'{{model="net",version="{version}",outcome="ok"}}'
        assert any(line.startswith(f"edgekit_inferences_total{labels} ") for line in lines)
    family = ""
    for line in lines:  # the samples of a family follow its declaration
        family = line.split(" ")[2] if line.startswith("#") else family
        assert line.startswith(("#", family))


def test_a_full_queue_is_told_at_once(bundle: Path) -> None:
    with (
        running({("net", "1"): bundle}, queue=2, deadline_ms=30_000) as server,
        ThreadPoolExecutor(8) as pool,
    ):
        with held(server) as until:
            asked = [pool.submit(server.ask, "POST", "/v2/models/net/infer", ASK)]
            until(0)
            asked += [pool.submit(server.ask, "POST", "/v2/models/net/infer", ASK) for _ in range(2)]
            until(2)
            status, headers, content = server.ask("POST", "/v2/models/net/infer", ASK)
            assert status == 503
            assert int(headers["retry-after"]) >= 1
            assert "the queue is full (2 requests)" in json.loads(content)["error"]
            assert server.ask("GET", "/v2/health/live")[0] == 200  # and the rest goes on
        assert [each.result()[0] for each in asked] == [200] * 3


def test_what_waited_too_long_is_not_run(bundle: Path) -> None:
    ask = json.dumps({"inputs": [TENSOR], "parameters": {"timeout": 100_000}}).encode()
    with running({("net", "1"): bundle}, deadline_ms=30_000) as server, ThreadPoolExecutor(4) as pool:
        with held(server) as until:
            first = pool.submit(server.ask, "POST", "/v2/models/net/infer", ASK)
            until(0)
            late = pool.submit(server.ask, "POST", "/v2/models/net/infer", ask)
            until(1)
            time.sleep(0.2)
        status, headers, content = late.result()
        assert (status, int(headers["retry-after"]) >= 1) == (503, True)
        assert "its deadline had passed" in json.loads(content)["error"]
        assert first.result()[0] == 200
        outcomes = server.models.find("net", None).metrics.snapshot()["outcomes"]
        assert outcomes == {"ok": 1, "overdue": 1}


def test_too_many_at_once(bundle: Path) -> None:
    with (
        running({("net", "1"): bundle}, in_flight=1, deadline_ms=30_000) as server,
        ThreadPoolExecutor(2) as pool,
    ):
        with held(server) as until:
            first = pool.submit(server.ask, "POST", "/v2/models/net/infer", ASK)
            until(0)
            status, headers, body = server.ask("POST", "/v2/models/net/infer", ASK)
            assert (status, headers["retry-after"]) == (503, "1")
            assert json.loads(body) == {"error": "the server is answering 1 requests; retry in 1 s"}
        assert first.result()[0] == 200


def test_two_batch_sizes_are_one_model(tmp_path: Path) -> None:
    model = write(tmp_path, ROWS, "rows.onnx")
    paths = []
    for rows in (4, 1):
        built = edgekit.build(model, targets=["ort"], shapes={"x": (rows, 4)})
        paths.append(str(built.save(tmp_path / f"rows-{rows}.edgekit")))
    found = bundles_by_name(paths)
    assert found == {("rows", "1"): (Path(paths[1]), Path(paths[0]))}
    with pytest.raises(UsageError, match="are both rows 1"):
        bundles_by_name([*paths, paths[0]])
    server = Running(ServedModels(found, ServeOptions(deadline_ms=30_000)))
    net = server.models.find("rows", None)
    if net.many is not None:  # faster here by the measurement; else there is nothing to see
        assert net.batching is not None
        net.batching.batches = {
            sizes: replace(batch, min_requests=2) for sizes, batch in net.batching.batches.items()
        }
    tensors = [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [n, -n, n, n]} for n in range(12)]
    with ThreadPoolExecutor(12) as pool:
        asked = [
            pool.submit(server.ask, "POST", "/v2/models/rows/infer", json.dumps({"inputs": [row]}))
            for row in tensors
        ]
        answers = [json.loads(each.result()[2]) for each in asked]
    assert [answer["outputs"][0]["data"] for answer in answers] == [[n, 0, n, n] for n in range(12)]
    server.close()
    assert net.session.state == "closed"


def test_bundles_of_two_models_are_refused(bundles: tuple[Path, Path]) -> None:
    with pytest.raises(UsageError, match=r"small\.edgekit and .*large\.edgekit are not from the same model"):
        ServedModel("net", "1", bundles, ServeOptions())


def test_priorities(server: Running) -> None:
    for given, status in ((1, 200), (8, 200), (9, 400), ("1", 400)):
        ask = json.dumps({"inputs": [TENSOR], "parameters": {"priority": given}})
        assert server.ask("POST", "/v2/models/net/infer", ask)[0] == status


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python 3.14 collects little by little")
def test_full_collections_of_garbage_are_rare_while_a_server_runs(bundle: Path) -> None:
    from edgekit.serve.app import YOUNGER_COLLECTIONS, YOUNGEST_COLLECTIONS

    before = gc.get_threshold()
    with running({("net", "1"): bundle}) as client:
        client.ask("GET", "/v2/health/live")
        assert gc.get_threshold()[1:] == (YOUNGEST_COLLECTIONS, YOUNGER_COLLECTIONS)
        assert YOUNGEST_COLLECTIONS * YOUNGER_COLLECTIONS >= 500 > 10 * YOUNGEST_COLLECTIONS
        assert gc.get_freeze_count() > 10_000
    assert gc.get_threshold() == before


def test_the_end_answers_what_was_accepted(bundle: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        server = Running(ServedModels({("net", "1"): (bundle,)}, ServeOptions(deadline_ms=30_000)))
        net = server.models.find("net", None)
        with held(server) as until:
            asked = [pool.submit(server.ask, "POST", "/v2/models/net/infer", ASK) for _ in range(6)]
            until(5)
            server.server.should_exit = True
            time.sleep(0.2)
        assert [each.result()[0] for each in asked] == [200] * 6
        server.close()
        assert net.session.state == "closed"


def test_an_engine_that_fails_is_told_without_paths(bundle: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def fails(feeds: Any) -> Any:
        raise RuntimeError("/home/kim/secret: the kernel died")

    with running({("net", "1"): bundle}) as server:
        server.models.find("net", None).session.runner.run = fails  # type: ignore[method-assign]
        status, _, content = server.ask("POST", "/v2/models/net/infer", ASK)
        assert (status, "kim" in content.decode()) == (500, False)
        assert "the server's log says why" in json.loads(content)["error"]
        assert server.ask("POST", "/v2/models/net/infer", ASK)[0] == 200  # it is loaded again
    assert "/home/kim/secret" in capfd.readouterr().err


def test_broken_clients_leave_nothing(server: Running) -> None:
    for sent in (
        b"",
        b"\0\1\2\r\n\r\n",
        b"POST /v2/models/net/infer HTTP/1.1\r\nContent-Length: 99\r\n\r\n{",
    ):
        with socket.create_connection(("127.0.0.1", server.port)) as wire:
            wire.sendall(sent)
    assert server.ask("POST", "/v2/models/net/infer", ASK)[0] == 200


def test_a_head_that_never_comes(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    protocol = pytest.importorskip("edgekit.serve.http_protocol", reason="httptools is not installed")
    whole = b"GET /v2/health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

    def until_closed(wire: socket.socket) -> bytes:
        received = b""
        while more := wire.recv(4096):
            received += more
        return received

    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.2)
    for sent, received in ((whole + b"GET", b"200 OK"), (b"GET", b""), (b"", b"")):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as wire:
            wire.sendall(sent)
            assert received in until_closed(wire)
    monkeypatch.undo()
    assert server.ask("POST", "/v2/models/net/infer", ASK)[0] == 200
