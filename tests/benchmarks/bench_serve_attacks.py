"""`edgekit serve` under all attacks at once, with good clients beside them.

    python -m tests.benchmarks.bench_serve_attacks MODEL.edgekit [--seconds 20] [--memory-mb 512]
        [--cores 0 --client-cores 1] [--same-address] [--attacks heads texts]

MODEL needs a card for pictures. Attackers send heads without end, bodies that drip before and after their
answers, gRPC calls without a message, texts as tensors in JSON, WebSocket messages and pictures that are
held back before their last byte, and idle connections. They have an address of their own (127.0.0.2) unless
`--same-address` is given, and no token is needed, so that all of them get as far as they can. Good clients
ask over HTTP and gRPC, one request after another. Printed are their answers by status and latencies, alone
and under attack, the server's processor time, also for each time that an attack came to its end, and the
server's memory against its budget. `--attacks` takes some of them, or one. Times of a machine that others use
too are only indicative: the counts and the processor time are what matters. Good clients get a real-time
priority where that is allowed: while a client waits for its core, the server's time counts for its request.
"""

from __future__ import annotations

import argparse
import base64
import json
import multiprocessing
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.runtime import Session
from edgekit.serve.grpc_messages import SERVICE, messages
from tests.benchmarks.bench_serve_load import http_request, memory_mb
from tests.fixtures.http2_frames import END_HEADERS, HEADERS, RESET, block, call_fields, connected, frame

HOST = b"Host: 127.0.0.1\r\n"
PIECE = 1 << 16
Wires = list[socket.socket]


class Attacker:
    """Where attacks go, and from which address.

    Args:
        port, grpc_port: The server's.
        source: Address of the attackers.
    """

    def __init__(self, port: int, grpc_port: int, source: str) -> None:
        self._port, self._grpc_port, self._source = port, grpc_port, source

    def wire(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._port), 5, (self._source, 0))

    def heads(self) -> None:
        """A head without end, as one value and as many headers."""
        for piece in (b"a" * PIECE, b"a:b\r\n" * 13000):
            with self.wire() as wire:
                wire.sendall(b"GET /v2 HTTP/1.1\r\n" + HOST + b"X: ")
                for _ in range(100):
                    wire.sendall(piece)

    def drips(self) -> None:
        """Bodies that go on byte by byte: after their answer, and before one."""
        wires: Wires = []
        for path in (b"GET /v2/health/live", b"POST /v2/models/m/infer"):
            for _ in range(600):
                wires.append(self.wire())
                wires[-1].sendall(path + b" HTTP/1.1\r\n" + HOST + b"Content-Length: 1000000\r\n\r\n")
        self._hold(wires, 3)

    def idle(self) -> None:
        """Connections that send nothing."""
        self._hold([self.wire() for _ in range(1100)], 3, b"")

    def texts(self) -> None:
        """Texts where numbers are wanted: one is long."""
        data = ["a" * 400_000, *[""] * 2_500]
        tensor = {"name": "x", "shape": [1], "datatype": "FP32", "data": data}
        body = json.dumps({"inputs": [tensor]}).encode()
        with self.wire() as wire:
            wire.sendall(
                b"POST /v2/models/m/infer HTTP/1.1\r\n"
                + HOST
                + b"Content-Length: %d\r\n\r\n" % len(body)
                + body
            )
            wire.recv(4096)

    def pictures(self) -> None:
        """Pictures without their last byte."""
        wires: Wires = []
        for _ in range(64):
            wires.append(self.wire())
            wires[-1].sendall(
                b"POST /v2/models/m/predict HTTP/1.1\r\n" + HOST + b"Content-Length: 33000000\r\n\r\n"
            )
            with suppress(OSError):
                for _ in range(31):
                    wires[-1].sendall(bytes(1 << 20))
        self._hold(wires, 3)

    def websockets(self) -> None:
        """Messages without their last byte, of 32 MB."""
        wires: Wires = []
        for _ in range(64):
            wires.append(self.wire())
            key = base64.b64encode(os.urandom(16))
            wires[-1].sendall(
                b"GET /v2/models/m/stream HTTP/1.1\r\n"
                + HOST
                + b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Extensions: permessage-deflate\r\n"
                b"Sec-WebSocket-Key: " + key + b"\r\nSec-WebSocket-Version: 13\r\n\r\n"
            )
            wires[-1].recv(4096)
            with suppress(OSError):
                wires[-1].sendall(b"\x82\xff" + struct.pack(">Q", 32 << 20) + bytes(4))
                for _ in range(31):
                    wires[-1].sendall(bytes(1 << 20))
        self._hold(wires, 3)

    def calls(self) -> None:
        """gRPC calls without a message, which are all begun and all reset at once."""
        wires, call = [], block(call_fields("ModelInfer"))
        for _ in range(4):
            wires.append(connected(self._grpc_port, source=self._source))
            wires[-1].sendall(b"".join(frame(HEADERS, END_HEADERS, n, call) for n in range(1, 200, 2)))
        time.sleep(3)
        for wire in wires:
            with suppress(OSError):
                wire.sendall(b"".join(frame(RESET, 0, n, b"\0\0\0\x08") for n in range(1, 200, 2)))
        for wire in wires:
            wire.close()

    def _hold(self, wires: Wires, seconds: float, piece: bytes = b"x") -> None:
        for _ in range(int(seconds)):
            time.sleep(1)
            for wire in wires:
                with suppress(OSError):
                    wire.sendall(piece)
        for wire in wires:
            wire.close()


def attack(port: int, grpc_port: int, source: str, cores: set[int], counts: Any, names: list[str]) -> None:
    """All attacks, again and again, until the process is ended."""
    os.sched_setaffinity(0, cores)
    if os.sched_getscheduler(0) == os.SCHED_FIFO:  # as the good clients
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    else:
        os.nice(19)  # else the good clients wait for the attackers' processor time, and not for the server
    attacker = Attacker(port, grpc_port, source)

    def again(number: int, act: Callable[[], None]) -> None:
        while True:
            with suppress(OSError):
                act()
            counts[number] += 1
            time.sleep(0.01)

    for number, name in enumerate(names):
        threading.Thread(target=again, args=(number, getattr(attacker, name)), daemon=True).start()
    threading.Event().wait()


def cpu_s(pid: int) -> float:
    """Processor time of a process, by its clock as clock_getcpuclockid(3) names it."""
    return time.clock_gettime(~pid << 3 | 2)


class Good:
    """A client that asks one request after another.

    Args:
        pid: The server's.

    Attributes:
        took_s: Latencies.
        worked_s: Processor time of the server, for anybody, from each request until its answer: its
            latency on a core that nothing else uses.
    """

    def __init__(self, pid: int) -> None:
        self.answers: Counter[str] = Counter()
        self.took_s: list[float] = []
        self.worked_s: list[float] = []
        self._pid = pid

    def run(self, ask: Callable[[], str], end_s: float) -> None:
        while (begun_s := time.perf_counter()) < end_s:
            worked_s = cpu_s(self._pid)
            self.answers[ask()] += 1
            self.took_s.append(time.perf_counter() - begun_s)
            self.worked_s.append(cpu_s(self._pid) - worked_s)
            time.sleep(0.02)


def over_http(port: int, request: bytes) -> Callable[[], str]:
    wire: list[socket.socket] = []

    def ask() -> str:
        try:
            if not wire:
                wire.append(socket.create_connection(("127.0.0.1", port), 10, ("127.0.0.1", 0)))
            wire[0].sendall(request)
            received = b""
            while b"\r\n\r\n" not in received:
                received += wire[0].recv(PIECE) or _lost()
            head, _, body = received.partition(b"\r\n\r\n")
            size = int(head.lower().split(b"content-length:")[1].split()[0])
            while len(body) < size:
                body += wire[0].recv(PIECE) or _lost()
            return head.split()[1].decode()
        except OSError as problem:
            wire.clear()
            return type(problem).__name__

    return ask


def _lost() -> bytes:
    raise ConnectionResetError


def over_grpc(port: int, bundle: Path) -> Callable[[], str]:
    import grpc

    made = messages()
    request = made["ModelInferRequest"](model_name="m")
    with Session(bundle) as session:
        for spec in session.inputs:
            from edgekit.runtime.remote.inference_protocol import DATATYPES

            request.inputs.add(name=spec.name, datatype=DATATYPES[spec.dtype], shape=spec.shape)
            request.raw_input_contents.append(np.zeros(spec.shape, spec.dtype).tobytes())
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    answer = made["ModelInferResponse"].FromString
    call = channel.unary_unary(f"/{SERVICE}/ModelInfer", lambda m: m.SerializeToString(), answer)

    def ask() -> str:
        try:
            call(request, timeout=10)
        except grpc.RpcError as problem:
            return str(problem.code().name)
        return "OK"

    return ask


def measured(clients: dict[str, Callable[[], str]], seconds: float, pid: int) -> dict[str, Good]:
    found = {name: Good(pid) for name in clients}
    end_s = time.perf_counter() + seconds
    threads = [threading.Thread(target=found[name].run, args=(clients[name], end_s)) for name in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def shown(title: str, found: dict[str, Good]) -> None:
    for kind in ("http", "grpc"):
        clients = [client for name, client in found.items() if name.startswith(kind)]
        took_ms = 1000 * np.array([took for client in clients for took in client.took_s])
        answers = sum((client.answers for client in clients), Counter[str]())
        p50, p99 = np.percentile(took_ms, [50, 99])
        worked_ms = 1000 * np.array([worked for client in clients for worked in client.worked_s])
        worked = "  ".join(f"p{n} {np.percentile(worked_ms, n):.2f}" for n in (50, 99))
        figures = f"p50 {p50:.1f}  p99 {p99:.1f}  worst {took_ms.max():.0f} ms"
        worked = f"the server worked {worked}  worst {worked_ms.max():.1f} ms"
        print(f"  {title:14}{kind}  {dict(answers)}  {figures}; {worked}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--memory-mb", type=int, default=512)
    parser.add_argument("--cores", default="0")
    parser.add_argument("--client-cores", default="1")
    parser.add_argument("--same-address", action="store_true")
    names = ["heads", "drips", "idle", "texts", "pictures", "websockets", "calls"]
    parser.add_argument("--attacks", nargs="+", default=names)
    given = parser.parse_args()
    cores = [set(map(int, text.split(","))) for text in (given.cores, given.client_cores)]
    command = [
        sys.executable,
        "-c",
        "from edgekit.cli.verbs import main; main()",
        "serve",
        f"m={given.bundle}",
    ]
    command += ["--listen", ":0", "--grpc", "127.0.0.1:0", "--threads", "1", "--json"]
    command += ["--request-memory-mb", str(given.memory_mb)]
    affinity = lambda: os.sched_setaffinity(0, cores[0])  # noqa: E731
    with subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=affinity) as server:
        assert server.stdout is not None
        said = json.loads(server.stdout.readline())
        port, grpc_port = (int(said[key].rpartition(":")[2]) for key in ("url", "grpc"))
        os.sched_setaffinity(0, cores[1])
        with suppress(PermissionError):  # a client that waits for its core counts what is done meanwhile
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        request = http_request(given.bundle)
        clients = {f"http {n}": over_http(port, request) for n in range(4)}
        clients["grpc"] = over_grpc(grpc_port, given.bundle)
        measured(clients, 2, server.pid)
        before_mb = memory_mb(server.pid)
        began_s = cpu_s(server.pid)
        shown("alone", measured(clients, given.seconds, server.pid))
        alone_ms = 1000 * (cpu_s(server.pid) - began_s)
        spawn = multiprocessing.get_context("spawn")
        counts = spawn.Array("i", len(given.attacks))
        source = "127.0.0.1" if given.same_address else "127.0.0.2"
        options = (port, grpc_port, source, cores[1], counts, given.attacks)
        attackers = spawn.Process(target=attack, args=options)
        attackers.start()
        time.sleep(3)
        most_mb, ends = [0.0], threading.Event()

        def watch() -> None:
            while not ends.wait(0.05):
                most_mb[0] = max(most_mb[0], memory_mb(server.pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        began_s, before = cpu_s(server.pid), list(counts[:])
        shown("under attack", measured(clients, given.seconds, server.pid))
        attack_ms = 1000 * (cpu_s(server.pid) - began_s)
        ended = dict(zip(given.attacks, np.subtract(counts[:], before).tolist(), strict=True))
        ends.set()
        watcher.join()
        attackers.kill()
        attackers.join()
        print(
            f"  server's processor time {alone_ms:.0f} ms alone, {attack_ms:.0f} under attack; for each of "
            f"the attacks {(attack_ms - alone_ms) / max(1, sum(ended.values())):.1f} ms"
        )
        print(f"  attacks {ended}")
        print(
            f"  memory {before_mb:.0f} MB before, {most_mb[0]:.0f} at most, the budget is {given.memory_mb}"
        )
        time.sleep(5)
        print(f"  5 s after the attacks {memory_mb(server.pid):.0f} MB")
        shown("after", measured(clients, 5, server.pid))
        server.terminate()
        print(f"  ended with {server.wait(60)}")


if __name__ == "__main__":
    main()
