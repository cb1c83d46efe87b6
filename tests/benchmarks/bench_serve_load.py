"""`edgekit serve` under load: what it reaches, what waiting costs, a spike; beside a loop over a session.

    python tests/benchmarks/bench_serve_load.py MODEL.edgekit [MODEL-8.edgekit] [--seconds 10] [--spike 20]
        [--cores 0 --client-cores 1] [--rate 4000]

The server and its clients run on different cores (`--cores`, `--client-cores`); the loop over `Session` runs
on the server's. Requests are binary and come from an open loop: each has its time, and its latency counts
from then on, whether or not a connection was free. Parts: the loop, the server with 1, 4, 16 and 64
connections, half of the best rate, ten times that for `--spike` seconds, and `--rate` if it is given. Figures
of a machine that others use too are only indicative.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from edgekit.runtime import Session
from edgekit.runtime.remote.inference_protocol import request_of

DEADLINE_MS = 250.0
CONNECTIONS = 256


class Answer(NamedTuple):
    """One request: when it should have been sent, its latency, and its status (0: it was never sent)."""

    at_s: float
    took_s: float
    status: int


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


class Wire(asyncio.Protocol):
    """One kept connection, one request at a time."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._done: asyncio.Future[int] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._buffer[:end]).lower()
        size = int(head.split(b"\ncontent-length:", 1)[1].split(b"\r\n", 1)[0])
        if len(self._buffer) >= end + 4 + size:
            del self._buffer[: end + 4 + size]
            done, self._done = self._done, None
            if done is not None and not done.done():
                done.set_result(int(head[9:12]))

    def connection_lost(self, error: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(-1)

    async def ask(self, request: bytes) -> int:
        return await self.begin(request)

    def begin(self, request: bytes) -> asyncio.Future[int]:
        """Send a request; its status, -1 where the connection is lost."""
        done = self._done = asyncio.get_running_loop().create_future()
        if self._transport.is_closing():
            done.set_result(-1)
        else:
            self._transport.write(request)
        return done

    def close(self) -> None:
        self._transport.close()


async def closed_loop(port: int, request: bytes, connections: int, seconds: float) -> list[Answer]:
    """So many connections, each with a request at all times."""
    loop = asyncio.get_running_loop()
    answers: list[Answer] = []
    end_s = time.perf_counter() + seconds

    async def one() -> None:
        _, wire = await loop.create_connection(Wire, "127.0.0.1", port)
        while (at_s := time.perf_counter()) < end_s:
            status = await wire.ask(request)
            answers.append(Answer(at_s, time.perf_counter() - at_s, status))
            if status < 0:
                _, wire = await loop.create_connection(Wire, "127.0.0.1", port)
        wire.close()

    await asyncio.gather(*(one() for _ in range(connections)))
    return answers


async def open_loop(port: int, request: bytes, phases: Sequence[tuple[float, float]]) -> list[Answer]:
    """Requests at random times (Poisson), of so many a second for so many seconds, phase by phase.

    It waits for each time by asking for the clock, because uvloop's timers are a millisecond late, and makes
    no task of a request: at ten times a server's rate the client must not be what is measured.
    """
    loop, clock = asyncio.get_running_loop(), time.perf_counter
    free: list[Wire] = []
    answers: list[Answer] = []
    waiting = 0

    def send(wire: Wire, at_s: float) -> None:
        nonlocal waiting
        waiting += 1

        def answered(done: asyncio.Future[int]) -> None:
            nonlocal waiting
            waiting -= 1
            answers.append(Answer(at_s, clock() - at_s, done.result()))
            if done.result() > 0:
                free.append(wire)

        wire.begin(request).add_done_callback(answered)

    for _ in range(CONNECTIONS):
        free.append((await loop.create_connection(Wire, "127.0.0.1", port))[1])
    rng, at_s = random.Random(0), clock()
    for rate, seconds in phases:
        end_s = at_s + seconds
        while (at_s := at_s + rng.expovariate(rate)) < end_s:
            while True:
                await asyncio.sleep(0)  # answers come in between
                if clock() >= at_s:
                    break
            if free:
                send(free.pop(), at_s)
            else:
                answers.append(Answer(at_s, 0.0, 0))
        at_s = end_s
    while waiting:
        await asyncio.sleep(0.001)
    for wire in free:
        wire.close()
    return answers


def quantile(values: Sequence[float], q: float) -> float:
    """Of unsorted values; nan if there are none."""
    found = sorted(values)
    return found[min(len(found) - 1, int(q * len(found)))] if found else float("nan")


def line(name: str, answers: Sequence[Answer], seconds: float) -> str:
    """What a series shows."""
    good = [each.took_s for each in answers if each.status == 200]
    refused = [each.took_s for each in answers if each.status == 503]
    late = sum(took > DEADLINE_MS / 1000 for took in good)
    other = len(answers) - len(good) - len(refused)
    shown = ", ".join(f"p{q:g} {1000 * quantile(good, q / 100):.2f}" for q in (50, 99, 99.9))
    text = f"{name:22} {len(good) / seconds:8.1f} answers/s  {shown} ms  {late} over {DEADLINE_MS:g} ms"
    if refused:
        text += f"  {len(refused)} refused in p50 {1000 * quantile(refused, 0.5):.2f}"
        text += f", p99 {1000 * quantile(refused, 0.99):.2f} ms"
    return text + (f"  {other} not sent or broken" if other else "")


def processor_s(pid: int) -> float:
    """Processor time of a process and its children so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return own + sum(processor_s(int(child)) for child in children)


def session_loop(bundle: Path, seconds: float) -> tuple[float, float]:
    """Runs a second of a loop over a session with one thread, and milliseconds of processor time of each."""
    with Session(bundle, threads=1, warm=True) as session:
        feeds = session.bundle.golden[0][0]
        count, began_s, processor = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() < began_s + seconds:
            session.run(feeds)
            count += 1
        each_ms = 1000 * (time.process_time() - processor) / count
        return count / (time.perf_counter() - began_s), each_ms


def http_request(bundle: Path, path: str = "/v2/models/m/infer") -> bytes:
    """A whole request, binary in and out."""
    with Session(bundle, threads=1) as session:
        pieces, headers = request_of(session.bundle.golden[0][0], session.inputs, session.outputs, True)
    body = b"".join(pieces)
    head = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
    head += [f"{name}: {value}" for name, value in headers.items() if name.lower() != "content-length"]
    return "\r\n".join([*head, "", ""]).encode() + body


def cores(text: str) -> set[int]:
    """``0,2-3`` as a set."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bundles", type=Path, nargs="+")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--spike", type=float, default=20)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--cores", default="0")
    parser.add_argument("--client-cores", default="1")
    parser.add_argument("--loop-only", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.loop_only:
        os.sched_setaffinity(0, cores(given.cores))
        print(*session_loop(given.bundles[0], given.seconds))
        return
    own = [sys.executable, __file__, str(given.bundles[0]), "--loop-only", "--cores", given.cores]
    said = subprocess.check_output([*own, "--seconds", str(given.seconds)]).split()
    alone, each_ms = float(said[0]), float(said[1])
    print(f"{'loop over Session':22} {alone:8.1f} runs/s     {each_ms:.3f} ms of processor time each")
    command = [sys.executable, "-c", "from edgekit.cli import main; main()", "serve"]
    command += [f"m={path}" for path in given.bundles]
    command += ["--listen", ":0", "--threads", "1", "--json"]
    command += ["--deadline-ms", str(DEADLINE_MS)]
    server_cores = cores(given.cores)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, preexec_fn=lambda: os.sched_setaffinity(0, server_cores)
    ) as process:
        assert process.stdout is not None
        try:
            port = int(json.loads(process.stdout.readline())["url"].rpartition(":")[2])
            os.sched_setaffinity(0, cores(given.client_cores))
            series(port, process.pid, http_request(given.bundles[0]), alone, given)
        finally:
            process.terminate()


def series(port: int, pid: int, request: bytes, alone: float, given: Any) -> None:
    """All parts against a server that runs."""
    run: Callable[[Coroutine[Any, Any, list[Answer]]], list[Answer]] = asyncio.run
    with suppress(ImportError):  # the client is not to be what is measured
        run = import_module("uvloop").run
    run(closed_loop(port, request, 4, 2.0))  # warm, and each worker's time of a run is known
    best, unloaded_s = 0.0, 0.0
    for connections in (1, 4, 16, 64):
        before_s = processor_s(pid)
        answers = run(closed_loop(port, request, connections, given.seconds))
        each_ms = 1000 * (processor_s(pid) - before_s) / max(1, len(answers))
        rate = sum(each.status == 200 for each in answers) / given.seconds
        best = max(best, rate)
        share = f"  {rate / alone:.3f} of the loop; {each_ms:.3f} ms of the server's processor time each"
        print(line(f"{connections} connections", answers, given.seconds) + share, flush=True)
        if connections == 1:
            unloaded_s = quantile([each.took_s for each in answers if each.status == 200], 0.99)
    answers = run(open_loop(port, request, [(best / 2, given.seconds)]))
    half_s = quantile([each.took_s for each in answers if each.status == 200], 0.99)
    print(line("half load", answers, given.seconds) + f"  p99 {half_s / unloaded_s:.2f} x the unloaded")
    if given.spike:
        began_s = time.perf_counter()
        answers = run(open_loop(port, request, [(best / 2, 3), (5 * best, given.spike), (best / 2, 5)]))
        up_s, down_s = began_s + 3, began_s + 3 + given.spike
        parts = {"before": (0.0, up_s), "spike": (up_s, down_s), "after, 1st s": (down_s, down_s + 1)}
        for name, (since_s, until_s) in {**parts, "after": (down_s + 1, float("inf"))}.items():
            part = [each for each in answers if since_s <= each.at_s < until_s]
            lasted = {"before": 3.0, "spike": given.spike, "after, 1st s": 1.0, "after": 4.0}[name]
            print(line(name, part, lasted))
    if given.rate:
        answers = run(open_loop(port, request, [(given.rate, given.seconds)]))
        print(line(f"{given.rate:g} a second", answers, given.seconds))


if __name__ == "__main__":
    main()
