"""What 400 calls of gRPC without a message, which begin or end at once, cost the request that comes next.

    python -m tests.benchmarks.bench_grpc_bursts MODEL.edgekit [--bursts 20] [--calls 100]

Four connections from an address of their own (127.0.0.2) send the metadata of their calls in one piece, and a
good client at 127.0.0.1 asks; then they close, and it asks again. Printed is the processor time of the server
between each request and its answer, in turns with requests where nothing else came: it depends less on what
else the machine does than a latency, and not on how fast attackers get a core.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from h2.config import H2Configuration
from h2.connection import H2Connection

from edgekit.serve.grpc_messages import SERVICE
from tests.benchmarks.bench_serve_attacks import cpu_s, over_grpc

CONNECTIONS = 4


def connected(port: int, calls: int) -> tuple[socket.socket, bytes]:
    """Return a connection whose settings are acknowledged, and the metadata of its calls."""
    wire = socket.create_connection(("127.0.0.1", port), 10, ("127.0.0.2", 0))
    http2 = H2Connection(H2Configuration(client_side=True))
    http2.initiate_connection()
    wire.sendall(http2.data_to_send())
    time.sleep(0.02)
    http2.receive_data(wire.recv(1 << 16))
    wire.sendall(http2.data_to_send())
    for number in range(calls):
        http2.send_headers(
            2 * number + 1,
            [
                (":method", "POST"), (":scheme", "http"), (":path", f"/{SERVICE}/ModelInfer"),
                (":authority", "127.0.0.1"), ("te", "trailers"), ("content-type", "application/grpc"),
            ],
        )  # fmt: skip
    return wire, http2.data_to_send()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--bursts", type=int, default=20)
    parser.add_argument("--calls", type=int, default=100)
    options = parser.parse_args()
    command = [sys.executable, "-c", "from edgekit.cli.verbs import main; main()", "serve"]
    command += [f"m={options.bundle}", "--listen", ":0", "--grpc", "127.0.0.1:0", "--threads", "1", "--json"]
    affinity: Callable[[], None] = lambda: os.sched_setaffinity(0, {0})  # noqa: E731
    with subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=affinity) as server:
        assert server.stdout is not None
        port = int(json.loads(server.stdout.readline())["grpc"].rpartition(":")[2])
        ask = over_grpc(port, options.bundle)
        while ask() != "OK":  # it has announced its address before it listens
            time.sleep(0.2)

        def worked_ms() -> float:
            began_s = cpu_s(server.pid)
            assert ask() == "OK"
            return 1000 * (cpu_s(server.pid) - began_s)

        times: dict[str, list[float]] = {"alone": [], "calls begin": [], "calls end": []}
        for _ in range(options.bursts):
            wires = [connected(port, options.calls) for _ in range(CONNECTIONS)]
            for _ in range(5):
                times["alone"].append(worked_ms())
            for wire, calls in wires:
                wire.sendall(calls)
            times["calls begin"].append(worked_ms())
            time.sleep(0.5)
            for wire, _ in wires:
                wire.close()
            times["calls end"].append(worked_ms())
            time.sleep(0.5)
        for name, found in times.items():
            low, median, high = np.percentile(found, [0, 50, 90])
            print(f"  {name:12} least {low:.2f}  median {median:.2f}  p90 {high:.2f} ms")
        server.terminate()
        server.wait(60)


if __name__ == "__main__":
    main()
