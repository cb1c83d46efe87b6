"""``edgekit serve --grpc`` under one attack after the other, direct or behind a proxy, with good clients.

    python -m tests.benchmarks.bench_grpc_attacks MODEL.edgekit [--proxy nginx] [--seconds 8] [--attacks ping]

The server and the proxy run on core 0, four good clients with a token at 127.0.0.1 and the attacker (nice 10,
at 127.0.0.2 and .3) on core 1. A row has the good clients' answers a second, p50 and p99 before and during
the attack, when the first good answer came after it, and the memory of the server above that before it. The
exit status is 1 if a server ended, took more than 200 MB, or was not good again within a second; behind a
proxy also if it took more than 70 MB, or the clients' p50 was more than twice that before.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import grpc
import numpy as np

from edgekit.runtime import Session
from edgekit.runtime.remote.inference_protocol import DATATYPES
from edgekit.serve.grpc_messages import SERVICE, messages
from tests.benchmarks.bench_serve_load import memory_mb
from tests.benchmarks.grpc_attacks import ATTACKS
from tests.fixtures.proxies import proxied

TOKEN = "a-token-of-this-benchmark"
METADATA = (("authorization", f"Bearer {TOKEN}"),)
OWN = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 1000)]
DIRECT_MB, PROXIED_MB = 200, 70


class Answer(NamedTuple):
    """A good client's call: when it ended, how long it took, and its code."""

    end_s: float
    took_ms: float
    code: str


class Good:
    """Four clients that call each 50 ms, each tenth time over a new connection."""

    def __init__(self, port: int, message: bytes) -> None:
        self.answers: list[Answer] = []
        self._target, self._message, self._ends = f"127.0.0.1:{port}", message, threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(4)]
        for thread in self._threads:
            thread.start()

    def _run(self, number: int) -> None:
        own = grpc.insecure_channel(self._target, OWN)
        while not self._ends.is_set():
            is_new = number % 10 == 9
            channel = grpc.insecure_channel(self._target, OWN) if is_new else own
            begin_s = time.monotonic()
            try:
                channel.unary_unary(f"/{SERVICE}/ModelInfer")(self._message, timeout=5, metadata=METADATA)
                code = "OK"
            except grpc.RpcError as problem:
                code = problem.code().name
            end_s = time.monotonic()
            self.answers.append(Answer(end_s, 1000 * (end_s - begin_s), code))
            if is_new:
                channel.close()
            number += 1
            self._ends.wait(max(0.01, 0.05 - (end_s - begin_s)))
        own.close()

    def close(self) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def summary(self, begin_s: float, end_s: float) -> tuple[float, str]:
        rows = [answer for answer in self.answers if begin_s <= answer.end_s < end_s]
        took = [answer.took_ms for answer in rows if answer.code == "OK"] or [float("inf")]
        p50, p99 = np.percentile(took, [50, 99], method="nearest")
        others = Counter(answer.code for answer in rows if answer.code != "OK")
        good = sum(answer.code == "OK" for answer in rows) / (end_s - begin_s)
        return float(p50), f"{good:3.0f}/s, {p50:3.0f}, {p99:4.0f} ms{f' {dict(others)}' if others else ''}"


def infer_message(bundle: Path) -> bytes:
    request = messages()["ModelInferRequest"](model_name="m")
    with Session(bundle) as session:
        for spec in session.inputs:
            request.inputs.add(name=spec.name, datatype=DATATYPES[spec.dtype], shape=spec.shape)
            request.raw_input_contents.append(np.zeros(spec.shape, spec.dtype).tobytes())
    return bytes(request.SerializeToString())


def trial(name: str, bundle: Path, message: bytes, proxy: str | None, seconds: float) -> list[str]:
    """Run one attack; return what was not as it must be."""
    with tempfile.TemporaryDirectory(prefix="edgekit-grpc-attacks-") as place, ExitStack() as stack:
        folder = Path(place)
        os.chmod(folder, 0o755)  # nginx's worker reads it
        (folder / "token").write_text(TOKEN)
        command = [sys.executable, "-m", "edgekit", "serve", f"m={bundle}", "--listen", "127.0.0.1:0"]
        command += [
            "--grpc",
            "127.0.0.1:0",
            "--threads",
            "1",
            "--json",
            "--token-file",
            str(folder / "token"),
        ]
        command += ["--behind-proxy"] if proxy else []
        log = stack.enter_context(open(folder / "log", "wb"))
        os.sched_setaffinity(0, {0})
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        stack.callback(server.wait)
        stack.callback(server.terminate)
        assert server.stdout is not None
        port = int(json.loads(server.stdout.readline())["grpc"].rpartition(":")[2])
        if proxy:
            port, _ = stack.enter_context(proxied(proxy, port, folder, tls=False))
        os.sched_setaffinity(0, {1})
        good = Good(port, message)
        time.sleep(4)
        before_mb, log_bytes, most_mb = memory_mb(server.pid), (folder / "log").stat().st_size, 0.0
        begin_s = time.monotonic()
        line = [sys.executable, "-m", "tests.benchmarks.grpc_attacks", name, str(port), str(seconds), TOKEN]
        attacker = subprocess.Popen(["nice", "-n", "10", *line], stdout=subprocess.PIPE)
        while attacker.poll() is None and server.poll() is None and time.monotonic() < begin_s + seconds + 30:
            most_mb = max(most_mb, memory_mb(server.pid))
            time.sleep(0.05)
        end_s = time.monotonic()
        attacker.kill()
        sent = attacker.communicate()[0].decode().strip()
        time.sleep(3)
        good.close()
        p50_before, before = good.summary(begin_s - 3, begin_s)
        p50, during = good.summary(begin_s + 0.5, end_s)
        again_s = min(
            (a.end_s - end_s for a in good.answers if a.end_s > end_s and a.code == "OK"), default=99
        )
        grew_kb = ((folder / "log").stat().st_size - log_bytes) / 1000
        more_mb = most_mb - before_mb
        print(
            f"{name:14} before {before}; during {during}; good after {again_s:.2f} s; "
            f"{before_mb:.0f} MB and {more_mb:.0f} more; log {grew_kb:.1f} kB; {sent}",
            flush=True,
        )
        faults = {
            "the server ended": server.poll() is not None,
            f"took {more_mb:.0f} MB": more_mb > (PROXIED_MB if proxy else DIRECT_MB),
            f"good after {again_s:.1f} s": again_s > 1,
            f"p50 {p50:.0f} ms instead of {p50_before:.0f}": bool(proxy) and p50 > 2 * p50_before,
        }
        return [f"{name}: {text}" for text, is_so in faults.items() if is_so]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--proxy", choices=["nginx", "haproxy"])
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--attacks", nargs="+", default=list(ATTACKS))
    given = parser.parse_args()
    message = infer_message(given.bundle)
    faults = [
        fault
        for name in given.attacks
        for fault in trial(name, given.bundle, message, given.proxy, given.seconds)
    ]
    print("\n".join(faults) or "all as it must be")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
