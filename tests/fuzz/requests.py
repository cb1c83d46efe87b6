"""A server of bundles under mutated requests, over HTTP, gRPC and WebSocket.

    python -m tests.fuzz.requests 1000000 [--start 0] [--seed 1]

The server is ``edgekit serve`` in a process of its own, reached over loopback. Each case is one request, made
from its number and the seed, and is sent twice. Faults are printed with their case: a status of 500, another
answer to the same request, no answer in 60 s, the end of the process, a traceback in its log, and 300 MB more
memory than after the first 2,000 cases. ``NUMBER --case`` sends one again.
test_requests.py is the short form.
"""

from __future__ import annotations

import argparse
import base64
import collections
import json
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.fixtures.bundle_mutations import bytes_changed
from tests.fuzz.grpc_targets import X, changed_message
from tests.fuzz.mutations import HTTP_LINES, changed_json, spoilt_text
from tests.fuzz.request_wire import Answer, Server, frame

GROWTH_KB, SETTLED = 300 << 10, 2000
TENSOR = {"name": "x", "shape": [1, 3, 1, 2], "datatype": "FP32"}
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAIAAAB7QOjdAAAAD0lEQVR4nGPgEpE7kcIAAAPbASukGNlxAAAAAElFTkSuQmCC"
)
INFER, PREDICT = "/v2/models/net/infer", "/v2/models/net/predict"
PATHS = (
    INFER, PREDICT, "/v2", "/v2/models/net", "/v2/models/net/ready", "/v2/models/net/versions/1",
    "/v2/health/live", "/v2/repository/index", "/v2/repository/models/net/load", "/v2/openapi.json",
    "/v2/repository/models/net/unload", "/v2/models/net/versions/1/infer", "/v2/models/net/stream",
)  # fmt: skip
NAMES = (
    "..", "%2e%2e", "%00", "%ff", "a" * 9000, "1" * 5000, "net/versions/9", "net?x=y", "\\", "//", "*", "%",
    ";", "net%2finfer", "\u0663", "-1", "#",
)  # fmt: skip
BUSY = ("503", "UNAVAILABLE", "RESOURCE_EXHAUSTED")
FAULTY = ("500", "501", "502", "INTERNAL", "UNKNOWN", "CANCELLED", "DEADLINE_EXCEEDED")


# --- what is sent ------------------------------------------------------------------------------------------

Send = Callable[[Server], Answer]


def _post(path: str, body: bytes, *lines: bytes) -> bytes:
    head = [f"POST {path} HTTP/1.1".encode("utf-8", "replace"), b"Host: localhost", *lines]
    return b"\r\n".join([*head, b"Content-Length: %d" % len(body)]) + b"\r\n\r\n" + body


def _asked(binary: bool) -> dict[str, Any]:
    values = {"parameters": {"binary_data_size": 24}} if binary else {"data": X.ravel().tolist()}
    outputs = [{"name": "scores", "parameters": {"binary_data": binary}}]
    limits = {"timeout": 20_000_000, "priority": 3, "binary_data_output": binary}
    return {"id": "7", "parameters": limits, "inputs": [{**TENSOR, **values}], "outputs": outputs}


def _json(draw: random.Random) -> Send:
    sent = _post(INFER, changed_json(draw, _asked(False))[:60_000])
    return lambda server: server.whole(sent)


def _binary(draw: random.Random) -> Send:
    head, tail = json.dumps(_asked(True)).encode(), X.tobytes()
    if draw.random() < 0.7:
        head = changed_json(draw, _asked(True))[:4000]
    if draw.random() < 0.3:
        tail = bytes_changed(draw, tail)
    sizes = (b"0", b"-1", b"99999999999", b"+5", b"1e3", b"", b" 7", b"%d" % (len(head) + 1))
    size = b"%d" % len(head) if draw.random() < 0.8 else draw.choice(sizes)
    sent = _post(INFER, head + tail, b"Inference-Header-Content-Length: " + size)
    return lambda server: server.whole(sent)


def _raw(draw: random.Random) -> Send:
    body = draw.choice((json.dumps(_asked(False)).encode(), PNG, b""))
    lines = draw.sample(HTTP_LINES, draw.choice((0, 1, 1, 2, 3)))
    sent = _post(draw.choice(PATHS), body, *lines)
    for _ in range(draw.choice((0, 1, 1, 2))):
        sent = bytes_changed(draw, sent)
    return lambda server: server.raw(sent)


def _path(draw: random.Random) -> Send:
    parts = draw.choice(PATHS).split("/")
    parts[draw.randrange(1, len(parts))] = draw.choice(NAMES)
    body = draw.choice((b"", b"{}", b'{"parameters":{"version":"2"}}', b"["))
    body = spoilt_text(draw, body)[:4000] if draw.random() < 0.3 else body
    method = draw.choice(("GET", "POST", "POST", "PUT", "HEAD", "OPTIONS"))
    sent = _post("/".join(parts).replace("#", "%23"), body).replace(b"POST", method.encode(), 1)
    return lambda server: server.raw(sent)


def _picture(draw: random.Random) -> Send:
    sent = _post(PREDICT, bytes_changed(draw, PNG))
    return lambda server: server.whole(sent)


METHODS = (
    "ModelInfer",
    "ModelMetadata",
    "ModelReady",
    "RepositoryIndex",
    "RepositoryModelLoad",
    "ServerMetadata",
)


def _grpc(draw: random.Random) -> Send:
    method, sent = draw.choices(METHODS, (12, 1, 1, 1, 1, 1))[0], changed_message(draw)
    return lambda server: server.call(method, sent)


def _stream(draw: random.Random) -> Send:
    sent = [changed_message(draw) for _ in range(draw.choice((1, 2, 5)))]
    return lambda server: server.stream(sent)


def _frames(draw: random.Random) -> Send:
    payloads = (PNG, bytes_changed(draw, PNG), b"{}", b"", draw.randbytes(200))
    opcodes, firsts = (2, 2, 2, 1, 0, 9, 10, 3, 15), (0x80, 0x80, 0x80, 0, 0xC0, 0xF0)
    made = [
        frame(draw.choice(opcodes), draw.choice(payloads), draw.choice(firsts))
        for _ in range(draw.choice((1, 1, 2, 4)))
    ]
    sent = b"".join(made)
    sent = bytes_changed(draw, sent) if draw.random() < 0.3 else sent
    return lambda server: server.frames(sent)


KINDS: dict[str, tuple[int, Callable[[random.Random], Send]]] = {
    "HTTP in JSON": (25, _json), "HTTP in the binary form": (20, _binary), "HTTP, any bytes": (12, _raw),
    "HTTP, any path": (10, _path), "a picture": (5, _picture), "gRPC": (18, _grpc),
    "gRPC's stream": (4, _stream), "WebSocket": (6, _frames),
}  # fmt: skip

HALF_CLOSED = ("HTTP, any bytes", "HTTP, any path", "WebSocket")
"""Kinds whose client says at once that it sends no more: the server may close before its answer is ready, or
before all answers to the frames of a WebSocket are."""


# --- running -----------------------------------------------------------------------------------------------


def run(
    folder: Path, cases: Iterable[int], seed: int, counts: collections.Counter[str]
) -> Iterator[tuple[int, str]]:
    """Send cases to a server; gives those with a fault, and what it is."""
    server, names = Server(folder), list(KINDS)
    weights, settled_kb = [share for share, _ in KINDS.values()], 0
    try:
        for done, case in enumerate(cases, 1):
            draw = random.Random(f"{seed}/{case}")
            name = draw.choices(names, weights)[0]
            send = KINDS[name][1](draw)
            try:
                first, second = send(server), send(server)
                counts[f"{name}: {first.status or 'closed'}"] += 1
                what = _wrong(first, second, name in HALF_CLOSED)
            except Exception:
                what = traceback.format_exc()[-2000:]
            what = server.problem() or what
            if done == SETTLED:
                settled_kb = server.memory_kb()
            if (
                not what
                and done > SETTLED
                and done % 500 == 0
                and server.memory_kb() - settled_kb > GROWTH_KB
            ):
                what = (
                    f"{server.memory_kb() >> 10} MB of memory, {settled_kb >> 10} after the first {SETTLED}"
                )
                settled_kb = server.memory_kb()
            if what:
                yield case, f"{name}: {what}"
            if server.process.poll() is not None:
                server = Server(folder)
        counts["memory, MB"] = server.memory_kb() >> 10
    finally:
        server.close()


def _wrong(first: Answer, second: Answer, half_closed: bool = False) -> str:
    for answer in (first, second):
        if answer.status in FAULTY:
            return f"{answer}"
    if any(answer.status in BUSY or "503" in str(answer.content) for answer in (first, second)):
        return ""  # a deadline that the case itself asks for
    if half_closed and "" in (first.status, second.status):
        return ""
    if half_closed and first.status == second.status:
        shorter, longer = sorted((first.content, second.content), key=len)
        return "" if longer.startswith(shorter) else f"{first}, and again: {second}"
    return "" if first == second else f"{first}, and again: {second}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("cases", type=int, help="how many")
    parser.add_argument("--start", type=int, default=0, help="number of the first")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", action="store_true", help="send the case of this number alone")
    asked = parser.parse_args()
    numbers = range(asked.start, asked.start + asked.cases)
    counts: collections.Counter[str] = collections.Counter()
    faults, began = 0, time.monotonic()

    def told() -> Iterator[int]:
        for done, number in enumerate([asked.cases] if asked.case else numbers):
            if done % 10_000 == 0 and done:
                print(
                    f"{done:>9,} of {len(numbers):,}  {faults} faults  {time.monotonic() - began:.0f} s",
                    flush=True,
                )
            yield number

    with tempfile.TemporaryDirectory(prefix="edgekit-requests-") as folder:
        for case, what in run(Path(folder), told(), asked.seed, counts):
            faults += 1
            print(f"case {case} ({what})", flush=True)
    for key, count in sorted(counts.items()):
        print(f"{count:>9,}  {key}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
