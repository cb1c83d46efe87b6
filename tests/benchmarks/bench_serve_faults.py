"""What `edgekit serve` does when something breaks: the long forms of tests/serve.

python tests/benchmarks/bench_serve_faults.py MODEL.edgekit [--requests 100000] [PART ...]

memory    the server's memory over so many requests
swaps     two versions, swapped a hundred times under load
clients   300 slow and broken clients beside good ones; what they leave open
disk      a server that can write nothing
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.model_version import with_version
from tests.benchmarks.bench_serve_load import Wire, http_request

PARTS = ("memory", "swaps", "clients", "disk")


class Server(NamedTuple):
    """A server that runs."""

    port: int
    process: subprocess.Popen[bytes]

    def post(self, path: str, body: bytes = b"{}") -> Any:
        asked = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body)
        with urllib.request.urlopen(asked, timeout=60) as reply:
            return json.loads(reply.read())


@contextmanager
def serving(options: Sequence[str], before: Any = None) -> Iterator[Server]:
    """A server in a process of its own."""
    command = [sys.executable, "-c", "from edgekit.cli.verbs import main; main()", "serve", *options]
    command += ["--listen", ":0", "--threads", "1", "--json", "--deadline-ms", "20000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=before) as process:
        assert process.stdout is not None
        port = int(json.loads(process.stdout.readline())["url"].rpartition(":")[2])
        server = Server(port, process)
        try:
            yield server
        finally:
            process.send_signal(signal.SIGTERM)
            print(f"  ended with {process.wait(60)}")


async def load(port: int, request: bytes, connections: int, count: int, stop: asyncio.Event) -> Counter[str]:
    """So many requests, or until it stops; by what became of them."""
    loop, found, left = asyncio.get_running_loop(), Counter[str](), count

    async def one() -> None:
        nonlocal left
        wire = None
        while left > 0 and not stop.is_set():
            left -= 1
            try:
                if wire is None:
                    _, wire = await loop.create_connection(Wire, "127.0.0.1", port)
                status = await asyncio.wait_for(wire.ask(request), 60)
            except OSError:
                status = -1
            except asyncio.TimeoutError:
                status = -2
            found[{-1: "connection lost", -2: "stuck"}.get(status, str(status))] += 1
            if status < 0:
                wire = None
        if wire is not None:
            wire.close()

    await asyncio.gather(*(one() for _ in range(connections)))
    return found


def memory_mb(pid: int) -> float:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def memory(bundle: Path, requests: int) -> None:
    with serving([f"m={bundle}"]) as server:
        request, total = http_request(bundle), Counter[str]()
        for part in range(11):
            print(f"  {sum(total.values()):7} requests  {memory_mb(server.process.pid):.1f} MB", flush=True)
            if part < 10:
                total += asyncio.run(load(server.port, request, 8, requests // 10, asyncio.Event()))
        print(f"  {dict(total)}")


def swaps(bundle: Path, requests: int) -> None:
    name = "net"
    with tempfile.TemporaryDirectory() as folder:
        for version in (1, 2):
            with Bundle.open(bundle) as opened:
                with_version(opened, version).save(Path(folder) / f"{name}-{version}.edgekit")
        with serving(["--repository", folder]) as server:
            request = http_request(bundle, f"/v2/models/{name}/infer")

            async def both() -> Counter[str]:
                stop = asyncio.Event()
                loading = asyncio.create_task(load(server.port, request, 8, 10**9, stop))
                for number in range(100):
                    body = json.dumps({"parameters": {"version": 1 + (number + 1) % 2}}).encode()
                    await asyncio.to_thread(server.post, f"/v2/repository/models/{name}/load", body)
                stop.set()
                return await loading

            print(f"  100 swaps: {dict(asyncio.run(both()))}, {memory_mb(server.process.pid):.1f} MB")


def clients(bundle: Path, requests: int) -> None:
    with serving([f"m={bundle}"]) as server:
        request = http_request(bundle)

        def opened() -> int:
            return len(os.listdir(f"/proc/{server.process.pid}/fd"))

        asyncio.run(load(server.port, request, 8, 100, asyncio.Event()))
        before = opened()
        halves = (request[:20], request[: len(request) // 2], b"\0\1\2\r\n\r\n")
        slow = []
        for number in range(300):
            wire = socket.create_connection(("127.0.0.1", server.port))
            wire.sendall(halves[number % 3])
            if number % 2:
                wire.close()
            else:
                slow.append(wire)
        found = asyncio.run(load(server.port, request, 8, 2000, asyncio.Event()))
        print(f"  good ones beside: {dict(found)}; open files {before}, with slow clients {opened()}")
        time.sleep(35)
        print(f"  after 35 s, which is longer than a body may take: {opened()}")
        for wire in slow:
            wire.close()
        time.sleep(1)
        print(f"  after they left: {opened()}")


def disk(bundle: Path, requests: int) -> None:
    def no_writes() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    with serving([f"m={bundle}"], no_writes) as server:
        found = asyncio.run(load(server.port, http_request(bundle), 8, 2000, asyncio.Event()))
        print(f"  no file can grow: {dict(found)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("parts", nargs="*", default=PARTS)
    parser.add_argument("--requests", type=int, default=100_000)
    given = parser.parse_args()
    for part in given.parts:
        print(part, flush=True)
        globals()[part](given.bundle, given.requests)


if __name__ == "__main__":
    main()
