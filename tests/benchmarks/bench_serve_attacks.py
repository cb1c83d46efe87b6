"""``edgekit serve`` under one attack after the other, direct or behind nginx, with good clients.

    python -m tests.benchmarks.bench_serve_attacks [--proxy] [--seconds 6] [--attacks "1,000 idle"]

The server (and nginx with the file of docs/serve-behind-nginx.md) runs on core 0, four good clients at
127.0.0.1 and the attacker (nice 10, at 127.0.0.2) on core 1; all have a token. Three clients send 600 kB on a
kept connection, and one asks for the server's health on new ones. A row has their answers a second, p50 and
p99 before and during the attack, the first good answer after it, and the memory of the server above that
before it. The exit status is 1 if a server ended, took more than 300 MB, or was not good again within a
second; behind nginx also if the clients' p50 was more than twice that before.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.benchmarks.bench_serve_load import memory_mb
from tests.benchmarks.http_attacks import ATTACKS, LIVE, Attacker

TOKEN = "a-token-of-this-benchmark"
VALUES = 150_000
MOST_MB = 300


class Answer(NamedTuple):
    """A good client's request: when it ended, how long it took, and its status."""

    end_s: float
    took_ms: float
    status: str


class Good:
    """Four clients that ask each 20 ms."""

    def __init__(self, port: int) -> None:
        self.answers: list[Answer] = []
        self._port, self._ends = port, threading.Event()
        head = b'{"inputs":[{"name":"x","shape":[1,%d],"datatype":"FP32","parameters":' % VALUES
        head += b'{"binary_data_size":%d}}]}' % (4 * VALUES)
        infer = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "
        infer += TOKEN.encode() + b"\r\nInference-Header-Content-Length: %d\r\n" % len(head)
        infer += b"Content-Length: %d\r\n\r\n" % (len(head) + 4 * VALUES) + head + bytes(4 * VALUES)
        requests = [infer] * 3 + [LIVE]
        self._threads = [threading.Thread(target=self._run, args=(request,)) for request in requests]
        for thread in self._threads:
            thread.start()

    def _run(self, request: bytes) -> None:
        wire: socket.socket | None = None
        while not self._ends.is_set():
            began_s = time.perf_counter()
            try:
                wire = wire or socket.create_connection(("127.0.0.1", self._port), 10, ("127.0.0.1", 0))
                wire.sendall(request)
                status, closes = _answer(wire)
            except (OSError, IndexError) as problem:
                status, closes = type(problem).__name__, True
            now_s = time.perf_counter()
            self.answers.append(Answer(now_s, 1000 * (now_s - began_s), status))
            if wire and (closes or request is LIVE):
                wire.close()
                wire = None
            time.sleep(0.02)

    def between(self, begin_s: float, end_s: float) -> list[Answer]:
        return [each for each in self.answers if begin_s <= each.end_s < end_s]

    def close(self) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()


def _answer(wire: socket.socket) -> tuple[str, bool]:
    received = b""
    while b"\r\n\r\n" not in received:
        received += wire.recv(1 << 16) or _lost()
    head, _, body = received.partition(b"\r\n\r\n")
    size = int(head.lower().split(b"content-length:")[1].split()[0])
    while len(body) < size:
        body += wire.recv(1 << 16) or _lost()
    return head.split()[1].decode(), b"connection: close" in head.lower()


def _lost() -> bytes:
    raise ConnectionResetError


def bundles(folder: Path) -> list[str]:
    """Build ``m`` (600 kB to one value) and ``large`` (one value to 8 MB)."""
    import edgekit

    wide = helper.make_node("ReduceMean", ["x", "axes"], ["y"], keepdims=1)
    many = helper.make_node("Expand", ["x", "shape"], ["y"])
    made = (
        ("m", wide, [1, VALUES], [1, 1], numpy_helper.from_array(np.array([1]), "axes")),
        ("large", many, [1], [2 << 20], numpy_helper.from_array(np.array([2 << 20]), "shape")),
    )
    for name, node, shape, out, constant in made:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, out)
        graph = helper.make_graph([node], name, [x], [y], [constant])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        onnx.save(model, folder / f"{name}.onnx")
        edgekit.build(folder / f"{name}.onnx", targets=["ort"], trusted=True).save(folder / f"{name}.edgekit")
    return [f"{name}={folder / name}.edgekit" for name, *_ in made]


def row(attack: str, served: list[str], arguments: argparse.Namespace, folder: Path) -> bool:
    """Run one attack; prints its row, and returns whether the server was good."""
    (folder / "token").write_text(TOKEN)
    command = [sys.executable, "-c", "from edgekit.cli import main; main()", "serve", *served]
    command += ["--listen", ":0", "--token-file", str(folder / "token"), "--threads", "1", "--json"]
    command += ["--deadline-ms", "10000", "--request-memory-mb", "256", *arguments.options]
    command += ["--behind-proxy"] if arguments.proxy else []
    with ExitStack() as stack:
        log = stack.enter_context(open(folder / "log", "wb"))
        affinity = lambda: os.sched_setaffinity(0, {0})  # noqa: E731
        server = stack.enter_context(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, preexec_fn=affinity)
        )
        stack.callback(server.kill)
        assert server.stdout is not None
        port = int(json.loads(server.stdout.readline())["url"].rpartition(":")[2])
        if arguments.proxy:
            from tests.fixtures.proxies import proxied

            place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            port, proxy = stack.enter_context(proxied("nginx-http", port, place, tls=False))
            os.sched_setaffinity(proxy, {0})
        good = Good(port)
        stack.callback(good.close)
        time.sleep(1)
        before_mb, began_s = memory_mb(server.pid), time.perf_counter()
        time.sleep(2)
        most_mb, attack_s = before_mb, time.perf_counter()
        line = [sys.executable, "-m", "tests.benchmarks.bench_serve_attacks", "--port", str(port)]
        line += ["--attacks", attack, "--seconds", str(arguments.seconds)]
        attacker = subprocess.Popen(["nice", *line])
        while time.perf_counter() < attack_s + arguments.seconds:
            most_mb = max(most_mb, memory_mb(server.pid))
            time.sleep(0.05)
        attacker.kill()
        attacker.wait()
        end_s = time.perf_counter()
        time.sleep(2.5)
        before, during = good.between(began_s, attack_s), good.between(attack_s + 0.7, end_s)
        after = [each.end_s - end_s for each in good.between(end_s, end_s + 9) if each.status == "200"]
        lives = server.poll() is None
        after_mb = memory_mb(server.pid) if lives else 0.0
        figures = [_figures(answers) for answers in (before, during)]
        print(
            f"| {attack} | {_shown(before)} | {_shown(during)} | {min(after, default=99):.2f} s | "
            f"{most_mb - before_mb:.0f}, {after_mb - before_mb:.0f} | {(folder / 'log').stat().st_size} |",
            flush=True,
        )
        is_close = figures[1][0] <= 2 * figures[0][0] or not arguments.proxy
        return lives and most_mb - before_mb < MOST_MB and min(after, default=99) < 1 and is_close


def _figures(answers: list[Answer]) -> tuple[float, float]:
    good = [each.took_ms for each in answers if each.status == "200"] or [float("inf")]
    return float(np.percentile(good, 50)), float(np.percentile(good, 99))


def _shown(answers: list[Answer]) -> str:
    counts = Counter(each.status for each in answers)
    seconds = max(0.1, answers[-1].end_s - answers[0].end_s) if answers else 1.0
    p50, p99 = _figures(answers)
    others = "".join(f", {count} {status}" for status, count in counts.items() if status != "200")
    return f"{counts['200'] / seconds:.0f}/s; {p50:.1f}, {p99:.0f} ms{others}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--proxy", action="store_true")
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--attacks", nargs="+", default=list(ATTACKS))
    parser.add_argument("--options", nargs="*", default=[], help="options of the server")
    parser.add_argument("--port", type=int, help="attack this port, and nothing else")
    arguments: Any = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if arguments.port:
        os.sched_setaffinity(0, {1})
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, hard), hard))
        ATTACKS[arguments.attacks[0]](Attacker(arguments.port, TOKEN, arguments.seconds))
        os._exit(0)
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        served = bundles(Path(name))
        os.sched_setaffinity(0, {1})
        print("| attack | before: answers, p50, p99 | during | good again | MB at most, after | log, bytes |")
        print("|---|---|---|---|---|---|")
        good = [row(attack, served, arguments, Path(name)) for attack in arguments.attacks]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
