"""``edgekit serve`` as a process."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.model_version import with_version
from tests.fixtures.classifiers import vectors

grpc = pytest.importorskip("grpc", reason="grpcio is not installed (the extra serve)")
pytest.importorskip("uvicorn", reason="uvicorn is not installed (the extra serve)")
pytestmark = pytest.mark.needs_ort

TENSOR = {"name": "x", "shape": [1, 3, 1, 2], "datatype": "FP32", "data": vectors(1)[0]["x"].ravel().tolist()}
ASK = json.dumps({"inputs": [TENSOR]}).encode()


def _answers(port: int) -> float:
    """Return the number of responses, from the metrics."""
    wire = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    wire.request("GET", "/metrics")
    lines = wire.getresponse().read().decode().splitlines()
    wire.close()
    found = [line for line in lines if line.startswith("edgekit_inferences_total") and '"ok"' in line]
    return sum(float(line.rpartition(" ")[2]) for line in found)


def _posted(port: int, path: str, body: bytes = b"{}") -> Any:
    """The answer, over a connection of its own."""
    wire = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    wire.request("POST", path, body)
    reply = wire.getresponse()
    found = json.loads(reply.read())
    wire.close()
    assert reply.status == 200, found
    return found


@pytest.mark.skipif(sys.platform == "win32", reason="SIGTERM ends a process there without a word")
def test_the_verb_ends_with_sigterm(bundle: Path, tmp_path: Path) -> None:
    with Bundle.open(bundle) as opened:
        with_version(opened, 1).save(tmp_path / "small-1.edgekit")
    command = "from edgekit.cli import main; main()"
    line = ["serve", f"net={bundle}", "--listen", ":0", "--grpc", ":0", "--json"]
    line += ["--repository", str(tmp_path)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with (
        subprocess.Popen(
            [sys.executable, "-c", command, *line],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        ) as process,
        ExitStack() as stack,
    ):
        stack.callback(process.kill)  # a test that fails does not wait for it
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        assert (said["token"], said["models"][0]["name"]) == (None, "net")
        port = int(said["url"].rpartition(":")[2])
        for _ in range(3):
            _posted(port, "/v2/models/net/infer", ASK)
        with grpc.insecure_channel(said["grpc"]) as channel:
            live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
            assert live(b"", timeout=60, wait_for_ready=True) == b"\x08\x01"
        assert _answers(port) == 3
        with Bundle.open(bundle) as opened:
            with_version(opened, 2).save(tmp_path / "small-2.edgekit")
        assert _posted(port, "/v2/repository/models/small/load") == {}
        assert _posted(port, "/v2/models/small/infer", ASK)["model_version"] == "2"
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in errors.decode()


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT is sent to a whole console there")
def test_ctrl_c_ends_the_verb_without_a_word(bundle: Path) -> None:
    command = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # as in a terminal
    command += "from edgekit.cli import main; main()"
    line = ["serve", f"net={bundle}", "--listen", ":0", "--json"]
    with (
        subprocess.Popen(
            [sys.executable, "-c", command, *line],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        ) as process,
        ExitStack() as stack,
    ):
        stack.callback(process.kill)
        assert process.stdout is not None
        port = int(json.loads(process.stdout.readline())["url"].rpartition(":")[2])
        _posted(port, "/v2/models/net/infer", ASK)
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=60)
    assert (process.returncode, said, errors.decode()) == (0, b"", "")
