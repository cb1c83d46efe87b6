"""`edgekit serve` beside MLServer and LitServe with the same model on ONNX Runtime, one thread, in turns.

    python tests/benchmarks/bench_serve_peers.py MODEL.edgekit MODEL.onnx
        [--mlserver PYTHON] [--litserve PYTHON] [--seconds 5] [--rounds 5] [--connections 8]
        [--cores 0 --client-cores 1]

PYTHON has the peer and onnxruntime. All servers run at the same time on the same cores, and only one is asked
at a time. Requests are JSON, and for EdgeKit binary too (MLServer 1.7.1 answers 500 to it). Neither batches.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from edgekit.runtime import Session
from tests.benchmarks.bench_serve_load import closed_loop, cores, http_request, quantile

ORT = """
import numpy as np, onnxruntime
def session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
"""
MLSERVER = (
    ORT
    + """
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse
class Model(MLModel):
    async def load(self):
        self.run = session(self._settings.parameters.uri).run
        return True
    async def predict(self, payload):
        feeds = {each.name: NumpyCodec.decode_input(each) for each in payload.inputs}
        (y,) = self.run(None, feeds)
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("y", y)])
"""
)
LITSERVE = (
    ORT
    + """
import sys, litserve
class Api(litserve.LitAPI):
    def setup(self, device):
        self.run = session(sys.argv[1]).run
    def decode_request(self, request):
        given = request["inputs"][0]
        return {given["name"]: np.asarray(given["data"], np.float32).reshape(given["shape"])}
    def predict(self, feeds):
        return self.run(None, feeds)[0]
    def encode_response(self, y):
        answer = {"name": "y", "shape": list(y.shape), "datatype": "FP32", "data": y.ravel().tolist()}
        return {"outputs": [answer]}
if __name__ == "__main__":
    server = litserve.LitServer(Api(), accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=int(sys.argv[2]), generate_client_file=False, log_level="warning")
"""
)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def json_request(bundle: Path, path: str) -> bytes:
    with Session(bundle, threads=1) as session:
        feeds, (spec,) = session.bundle.golden[0][0], session.inputs
    data = feeds[spec.name].ravel().tolist()
    body = json.dumps(
        {"inputs": [{"name": spec.name, "shape": spec.shape, "datatype": "FP32", "data": data}]}
    )
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


def until_ready(url: str) -> None:
    for _ in range(1200):
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(url)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--mlserver")
    parser.add_argument("--litserve")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--cores", default="0")
    parser.add_argument("--client-cores", default="1")
    given = parser.parse_args()
    server_cores, asked = cores(given.cores), dict[str, tuple[int, bytes]]()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))

        def start(command: list[str], ready: str, environment: dict[str, str]) -> None:
            process = subprocess.Popen(
                command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env={**os.environ, **environment}, preexec_fn=lambda: os.sched_setaffinity(0, server_cores),
                start_new_session=True,
            )  # fmt: skip
            stack.callback(process.wait)
            stack.callback(os.killpg, process.pid, 15)
            until_ready(ready)

        port = free_port()
        own = [sys.executable, "-c", "from edgekit.cli.verbs import main; main()", "serve"]
        own += [f"m={given.bundle.resolve()}", "--listen", f":{port}", "--threads", "1"]
        start([*own, "--deadline-ms", "60000"], f"http://127.0.0.1:{port}/v2/health/ready", {})
        asked["edgekit binary"] = (port, http_request(given.bundle))
        asked["edgekit JSON"] = (port, json_request(given.bundle, "/v2/models/m/infer"))
        if given.mlserver:
            port = free_port()
            ports = {"http_port": port, "grpc_port": free_port(), "metrics_port": free_port()}
            (folder / "settings.json").write_text(json.dumps({**ports, "parallel_workers": 0}))
            settings: dict[str, Any] = {"name": "m", "implementation": "peer.Model"}
            settings["parameters"] = {"uri": str(given.model.resolve())}
            (folder / "model-settings.json").write_text(json.dumps(settings))
            (folder / "peer.py").write_text(MLSERVER)
            command = [given.mlserver, "-c", "from mlserver.cli import main; main()", "start", "."]
            start(command, f"http://127.0.0.1:{port}/v2/models/m/ready", {"PYTHONPATH": str(folder)})
            asked["MLServer JSON"] = (port, json_request(given.bundle, "/v2/models/m/infer"))
        if given.litserve:
            port = free_port()
            (folder / "lit.py").write_text(LITSERVE)
            command = [given.litserve, "lit.py", str(given.model.resolve()), str(port)]
            start(command, f"http://127.0.0.1:{port}/health", {})
            asked["LitServe JSON"] = (port, json_request(given.bundle, "/predict"))
        os.sched_setaffinity(0, cores(given.client_cores))
        rates: dict[str, list[float]] = {name: [] for name in asked}
        times: dict[str, list[float]] = {name: [] for name in asked}
        for turn in range(given.rounds + 1):
            for name, (port, request) in asked.items():
                seconds = given.seconds if turn else 1.0  # the first one warms
                answers = asyncio.run(closed_loop(port, request, given.connections, seconds))
                good = [each.took_s for each in answers if each.status == 200]
                if turn:
                    rates[name].append(len(good) / seconds)
                    times[name] += good
                if len(good) < len(answers):
                    print(f"{name}: {len(answers) - len(good)} of {len(answers)} failed")
        for name in asked:
            shown = ", ".join(f"p{q} {1000 * quantile(times[name], q / 100):.2f}" for q in (50, 99))
            middle = statistics.median(rates[name])
            spread = f"{min(rates[name]):.0f} to {max(rates[name]):.0f}"
            print(f"{name:16} {middle:8.1f} answers/s ({spread})  {shown} ms")


if __name__ == "__main__":
    main()
