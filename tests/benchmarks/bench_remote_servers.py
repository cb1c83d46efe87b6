"""`RemoteSession` with two `edgekit serve`, one of which is killed and started again.

    python tests/benchmarks/bench_remote_servers.py MODEL.edgekit [--rate 20] [--seconds 30]

Requests are sent at a fixed rate, each from a thread of its own. A third into it the first server is killed,
at two thirds it is started again. An answer counts if it has the outputs of the session alone.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from edgekit.runtime import RemoteSession, Session


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(bundle: Path, port: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "edgekit", "serve", str(bundle), "--port", str(port)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait_for(port: int) -> None:
    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise SystemExit(f"no server at port {port}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--rate", type=float, default=20.0)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    count = int(options.rate * options.seconds)
    ports = [free_port(), free_port()]
    servers = [start(options.bundle, port) for port in ports]
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    try:
        for port in ports:
            wait_for(port)
        with (
            Session(options.bundle, threads=1) as session,
            RemoteSession(session, urls, options.bundle.stem, policy="remote-first") as both,
            ThreadPoolExecutor(64) as pool,
        ):
            feeds = session.bundle.golden[0][0]
            expected = session.run(feeds)

            def ask(due_s: float) -> tuple[float, str, bool]:
                answer = both.run(feeds)
                same = all(np.allclose(answer[name], expected[name], atol=1e-4) for name in expected)
                return (time.monotonic() - due_s) * 1000, answer.path, same

            for _ in range(20):
                both.run(feeds)
            began_s, results = time.monotonic(), []
            for number in range(count):
                if number == count // 3:
                    servers[0].send_signal(signal.SIGKILL)
                if number == 2 * count // 3:
                    servers[0] = start(options.bundle, ports[0])
                due_s = began_s + number / options.rate
                time.sleep(max(0.0, due_s - time.monotonic()))
                results.append(pool.submit(ask, due_s))
            rows = [result.result() for result in results]
    finally:
        for server in servers:
            server.kill()
    print(f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")
    for label, part in (("two", rows[: count // 3]), ("one", rows[count // 3 : 2 * count // 3]),
                        ("again", rows[2 * count // 3 :]), ("all", rows)):  # fmt: skip
        times = np.array([took_ms for took_ms, _, _ in part])
        paths, right = Counter(path for _, path, _ in part), sum(same for *_, same in part)
        print(f"{label:6} {right} of {len(part)} right, p50 {np.percentile(times, 50):.0f}"
              f" p99 {np.percentile(times, 99):.0f} max {times.max():.0f} ms, {dict(paths)}")  # fmt: skip


if __name__ == "__main__":
    main()
