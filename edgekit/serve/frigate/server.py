"""Frigate's ``zmq`` detector, answered in time while an engine is dead or hangs.

Two worker processes hold the model: the first one runs the best variant or the accelerator, the reserve runs
another engine on the CPU. A frame goes to the first worker; if that has died, hangs or takes longer than
usual, to the reserve, and the first result counts. One that failed is started again at once and rests, but
stands in if the other one fails meanwhile. This process runs no engine, so nothing of theirs can hold the
socket. A result after the deadline is dropped, because its frame has been answered by then.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from edgekit.bundle.bundle import Bundle
from edgekit.errors import EngineError, UsageError, need_package
from edgekit.processing.inputs.image import ImageInput
from edgekit.runtime.deadline.watchdog import cutoff_s
from edgekit.runtime.session_card import card_of
from edgekit.serve.frigate.messages import KNOWN_CLASSES, ZEROS, FrameTensor, classes_of, read_request
from edgekit.serve.frigate.proof import ReserveProof
from edgekit.serve.frigate.worker import Worker
from edgekit.system.closing import Closing
from edgekit.system.cpu import default_threads
from edgekit.system.listen_address import address_of
from edgekit.system.memory import release_unused, resident_bytes

if TYPE_CHECKING:
    from edgekit.serve.serve_request import ServeRequest

DEADLINE_S = 0.150
"""Time of a frame; Frigate waits for 200 ms."""
WAITING = 16
"""Maximum number of frames that wait; Frigate sends one for each of its detectors."""
GROWTH_BYTES = 64 << 20
"""Growth of this process at which all connections are dropped: no option of ZeroMQ limits the number of a
message's frames."""
DATA_BYTES = 512 << 20
"""Limit of this process's memory, if it grows faster than that is noticed."""
SETTLE_S = 0.05
"""Time in which ZeroMQ's threads free what dropped connections held."""
LOOK_S = 0.05
"""Maximum time between two looks at the memory and at the workers."""
OPTIONS = (
    "bundles", "frigate", "pixel_format", "labelmap", "accelerator", "engine", "threads", "behind_proxy",
    "announce",
)  # fmt: skip
"""Options of a request that a server for Frigate has."""
WRONG_ORDER = (
    "warning: the model is surer of these frames in the other colour order; compare --pixel-format with "
    "input_pixel_format in Frigate's configuration"
)
SOCKET_OPTIONS = {
    "MAXMSGSIZE": 8 << 20, "RCVHWM": 4, "LINGER": 0, "HANDSHAKE_IVL": 2000, "HEARTBEAT_IVL": 2000,
    "HEARTBEAT_TIMEOUT": 4000,
}  # fmt: skip


class ServedFrames(NamedTuple):
    """A worker as the announcement shows it."""

    name: str
    version: str
    session: Worker


class Frame:
    """A request that waits for its result."""

    def __init__(self, client: bytes, tensor: FrameTensor) -> None:
        self.client, self.tensor, self.arrived_s = client, tensor, time.monotonic()
        self.workers: set[Worker] = set()
        self.failed: set[Worker] = set()


class FrigateServer(Closing):
    """The socket and its two workers.

    Attributes:
        counts: Number of frames, of those that each worker answered, and of those that nobody did in time.
    """

    def __init__(self, endpoint: str, options: Mapping[str, Any]) -> None:
        with need_package("pyzmq", "serving Frigate", extra="frigate", module="zmq"):
            import zmq
        self._zmq, self.endpoint = zmq, endpoint
        self._context = zmq.Context()
        self._socket: zmq.Socket[bytes] | None = None
        self.counts: Counter[str] = Counter()
        self.first = Worker("first worker", {**options, "avoid": ""})
        self.reserve = Worker("reserve", {**options, "avoid": "", "engine": None, "device": "cpu"})
        self.reserve.start_s = math.inf  # until it is known which engine it must not share
        self._workers = self.first, self.reserve
        self._frames: dict[int, Frame] = {}
        self._numbers = count(1)
        self._proof = ReserveProof(self.reserve, self._numbers)
        self._is_ending = False
        self._bind()
        self._first_bytes, self._settled_s = resident_bytes(), 0.0

    def _bind(self) -> None:
        """Bind the socket, again if it is bound: that ends all connections and frees their memory."""
        if self._socket is not None:
            self._socket.close(0)
        self._socket = opened = self._context.socket(self._zmq.ROUTER)
        for name, value in SOCKET_OPTIONS.items():
            opened.setsockopt(getattr(self._zmq, name), value)
        opened.setsockopt(self._zmq.IPV6, "[" in self.endpoint)
        for attempt in range(100):
            try:
                opened.bind(self.endpoint)
                last = cast("bytes", opened.getsockopt(self._zmq.LAST_ENDPOINT))
                self.endpoint = last.rstrip(b"\0").decode()
                return
            except self._zmq.ZMQError as problem:  # its own old address may take a moment
                if not self.counts or attempt == 99:
                    raise UsageError(f"can't listen on {self.endpoint}: {problem.strerror}") from None
                time.sleep(0.01)

    # --- the loop ----------------------------------------------------------------------------------------

    def run(self, announce: Any, title: str) -> None:
        """Serve until :meth:`end` is called.

        Raises:
            UsageError: the bundle has nothing for the engine, or the accelerator is unknown.
            EngineError: neither worker can load a variant at the start.
        """
        self.first.start()
        is_announced = False
        while not self._is_ending:
            self._turn(self._wait_s(time.monotonic()))
            if not is_announced and self.first.is_misused:
                raise UsageError(self.first.error)
            if not is_announced and self.first.error and self.reserve.error:
                raise EngineError(self.first.error)
            if not is_announced and all(worker.active or worker.error for worker in self._workers):
                is_announced = True
                served = [ServedFrames(title, w.name, w) for w in self._workers if w.active]
                announce(self.endpoint, None, None, served)
                for worker in (w for w in self._workers if w.active):
                    worker.events.clear()
            for worker in self._workers if is_announced else ():
                while worker.events:
                    _log(worker.events.pop(0))
        _log(", ".join(f"{number} {name}" for name, number in self.counts.items()) or "no frames")

    def end(self, *_: object) -> None:
        """End ``run`` soon."""
        self._is_ending = True

    def close(self) -> None:
        """End the workers, and close the socket."""
        for worker in self._workers:
            worker.close()
        self._context.destroy(0)

    def _wait_s(self, now_s: float) -> float:
        times = [frame.arrived_s + DEADLINE_S for frame in self._frames.values()]
        times += [worker.expected_s(self._limit_s) for worker in self._workers]
        return min([LOOK_S, *(max(0.0, at_s - now_s) for at_s in times if at_s > now_s - LOOK_S)])

    @property
    def _limit_s(self) -> float:
        """Return the time after which a frame goes to the reserve at the latest."""
        return cutoff_s(DEADLINE_S, self.reserve.took_s)

    def _turn(self, seconds: float) -> None:
        """Wait for messages, at most so long, and do what is due."""
        poller = self._zmq.Poller()
        poller.register(self._socket, self._zmq.POLLIN)
        for worker in self._workers:
            if worker.channel is not None:
                poller.register(worker.channel, self._zmq.POLLIN)
        # ZeroMQ waits for whole milliseconds; at least one, so that a deadline does not spin.
        readable = dict(poller.poll(max(1, int(1000 * seconds))))
        if self._socket in readable:
            self._receive()
        for worker in self._workers:
            for number, rows in worker.receive():
                self._computed(worker, number, rows)
        now_s = time.monotonic()
        for worker in self._workers:
            worker.check(now_s, self._limit_s)
        if self.reserve.start_s == math.inf and (self.first.target or self.first.error):
            self.reserve.options["avoid"], self.reserve.start_s = self.first.target, 0.0
        self._schedule(now_s)
        self._limit_memory(now_s)

    def _limit_memory(self, now_s: float) -> None:
        """Drop all connections if this process has grown too much, and then release what they held: the
        allocator keeps freed memory, which would count as that of the next clients."""
        if now_s < self._settled_s:
            return
        if self._settled_s:
            release_unused()
            self._settled_s, self._first_bytes = 0.0, resident_bytes()
        elif resident_bytes() > self._first_bytes + GROWTH_BYTES:
            _log("a client sends without end; all connections are dropped")
            self.counts["dropped connections"] += 1
            self._bind()
            self._settled_s = now_s + SETTLE_S

    # --- messages ----------------------------------------------------------------------------------------

    def _receive(self) -> None:
        assert self._socket is not None
        for _ in range(WAITING):
            try:
                client, *parts = self._socket.recv_multipart(self._zmq.NOBLOCK, copy=False)
            except self._zmq.Again:
                return
            if not parts or len(parts[0]):  # not a REQ socket's
                continue
            try:
                request = read_request([part.buffer for part in parts[1:]])
            except ValueError:
                self.counts["malformed"] += 1
                request = ZEROS
            if isinstance(request, bytes):
                self._send(client.bytes, request)
                continue
            self.counts["frames"] += 1
            self._frames[next(self._numbers)] = Frame(client.bytes, request)
            if len(self._frames) > WAITING:
                self._answer(next(iter(self._frames)), ZEROS, "unanswered")

    def _send(self, client: bytes, content: bytes) -> None:
        assert self._socket is not None
        with contextlib.suppress(self._zmq.Again):
            self._socket.send_multipart([client, b"", content], self._zmq.NOBLOCK)

    def _answer(self, number: int, rows: bytes, by: str) -> None:
        frame = self._frames.pop(number)
        self.counts[by] += 1
        self._send(frame.client, rows)

    # --- frames ------------------------------------------------------------------------------------------

    def _computed(self, worker: Worker, number: int, rows: bytes | None) -> None:
        if number == self._proof.number:
            self._proof.computed(rows)
            if self._proof.is_wrong_order:
                self._proof.is_wrong_order = False
                _log(WRONG_ORDER)
        elif number not in self._frames:
            self.counts["dropped"] += 1
        elif rows is None:
            self._frames[number].failed.add(worker)
        elif time.monotonic() > self._frames[number].arrived_s + DEADLINE_S:
            self.counts["dropped"] += 1
            self._answer(number, ZEROS, "unanswered")
        else:
            self._answer(number, rows, f"by the {worker.name}")

    def _schedule(self, now_s: float) -> None:
        """Give frames to workers, and answer those whose deadline has come."""
        for number, frame in list(self._frames.items()):
            frame.workers = {w for w in frame.workers if w.number == number}
            if now_s >= frame.arrived_s + DEADLINE_S:
                self._answer(number, ZEROS, "unanswered")
            elif worker := self._worker_for(frame, now_s):
                frame.workers.add(worker)
                worker.give(number, frame.tensor)
        if self._frames and self.reserve.is_idle:
            self._proof.begin(now_s, next(iter(self._frames.values())).tensor)

    def _worker_for(self, frame: Frame, now_s: float) -> Worker | None:
        """Return the worker that shall compute a frame now; one that rests only if no other can."""
        limit_s = self._limit_s
        if any(now_s < worker.expected_s(limit_s) for worker in frame.workers):
            return None
        workers = [self.first, self.reserve]
        if now_s >= frame.arrived_s + limit_s:
            workers.reverse()
        for worker in sorted(workers, key=lambda worker: now_s < worker.rests_until_s):
            if worker in frame.workers | frame.failed:
                continue
            if worker.is_idle:
                return worker
            if now_s < worker.expected_s(limit_s):
                return None  # it runs another frame, and will be idle soon
        return None


def serve_frigate(request: ServeRequest) -> None:
    """Serve one bundle to Frigate until SIGTERM or Ctrl-C.

    Raises:
        UsageError: an option is wrong or missing, the bundle is not a detector, or the address is in use.
        MissingDependency: pyzmq is not installed. EngineError: no variant works here.
    """
    _refuse_others(request)
    if not hasattr(os, "memfd_create"):
        raise UsageError("--frigate needs Linux: frames go to the engine's process in its shared memory")
    if len(request.bundles) != 1:
        raise UsageError("--frigate serves one bundle; give one")
    if request.pixel_format is None:
        raise UsageError(
            "--frigate needs --pixel-format rgb or bgr, the input_pixel_format of the model in Frigate's "
            "configuration (rgb by default): Frigate does not send it, and a wrong one costs accuracy"
        )
    path = request.bundles[0]
    with Bundle.open(path) as bundle:
        card, title = card_of(bundle), Path(path).stem
    source = card.sources()[0]
    if not isinstance(source, ImageInput) or card.task is None or card.task.kind != "detect":
        raise UsageError(
            f"{title} does not detect objects in images, as its card says; Frigate needs a detector"
        )
    labels = card.task.labels
    classes = classes_of(labels, request.labelmap)
    if request.labelmap is None and len(labels) > KNOWN_CLASSES:
        _log(f"classes from {KNOWN_CLASSES} on are dropped; give --labelmap, the file that Frigate reads too")
    options = {
        "bundle": path, "engine": request.engine, "device": request.accelerator or "cpu",
        "threads": request.threads or default_threads(), "order": request.pixel_format, "classes": classes,
        "size": (source.height, source.width),
    }  # fmt: skip
    endpoint = endpoint_of(request.frigate or "", request.behind_proxy)
    limit_memory()
    with FrigateServer(endpoint, options) as server:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, server.end)
        server.run(request.announce, title)


def _refuse_others(request: ServeRequest) -> None:
    from edgekit.system.declared_options import declared

    for field in declared(type(request)):
        if field.name not in OPTIONS and field.is_given(request):
            raise UsageError(f"{field.shown} does not go with --frigate, which serves nothing else")


def endpoint_of(address: str, is_protected: bool) -> str:
    """Check an address for Frigate: ``ipc://PATH`` or ``tcp://HOST:PORT``.

    Args:
        is_protected: Whether it may be another one than loopback's.

    Raises:
        UsageError: it is malformed, others could reach it, or it is in use.
    """
    kind, separator, rest = address.partition("://")
    if kind == "ipc" and separator and rest.startswith("/"):
        _check_path(Path(rest))
        return address
    if kind != "tcp" or ":" not in rest:
        raise UsageError(f"--frigate is {address!r}; it must be ipc:///PATH or tcp://HOST:PORT")
    listen = address_of(rest, "--frigate")
    if not (listen.loopback or is_protected):
        raise UsageError(
            f"--frigate {address} lets other machines in, and Frigate's client has neither TLS nor a "
            "password: use ipc:///PATH or tcp://127.0.0.1:PORT, or give --behind-proxy if only Frigate "
            "reaches the address"
        )
    host = "127.0.0.1" if listen.host == "localhost" else listen.shown
    return f"tcp://{host}:{listen.port or '*'}"


def _check_path(path: Path) -> None:
    """Raise UsageError if the socket's path can't be used: ZeroMQ removes whatever is there."""
    if not path.parent.is_dir():
        raise UsageError(f"--frigate: the folder {path.parent} does not exist")
    if not os.path.lexists(path):
        return
    if not path.is_socket():
        raise UsageError(f"--frigate: {path} exists, and is not a socket; give another path, or remove it")
    with socket.socket(socket.AF_UNIX) as other, contextlib.suppress(ConnectionRefusedError):
        other.connect(str(path))
        raise UsageError(f"--frigate: another process listens on {path}")


def limit_memory() -> None:
    """Limit this process's memory; its workers lift that for themselves."""
    import resource

    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    limit = DATA_BYTES if hard == resource.RLIM_INFINITY else min(DATA_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def _log(line: str) -> None:
    print(f"frigate: {line}", file=sys.stderr, flush=True)
