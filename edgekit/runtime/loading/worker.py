"""A variant in a child process of its own: a crash or a hang of its engine costs one request, not the app.

    runner = WorkerRunner(bundle, variant, threads)
    runner.run(feeds)       # arrays travel in shared memory, and 8 bytes each way by a socket

The child is a probe's (probe_child.py), which stays after it has reproduced the golden vectors: the loaded
variant that serves has computed them itself. It ends when its socket is closed, hence with the app. A timer
of the kernel ends it if it hangs, whatever lock it holds.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import signal
import socket
import struct
import subprocess
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from edgekit.errors import EngineError, reason_of
from edgekit.runtime.loading import probe
from edgekit.system.formats import strict_json
from edgekit.system.interrupts import Background
from edgekit.target.kept_arrays import kept_copy
from edgekit.tensor_spec import Array, Json, Signature, TensorSpec

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle
    from edgekit.bundle.variant import Variant
    from edgekit.runtime.loading.checked_runner import CheckedRunner

NUMBER = struct.Struct("<Q")
"""Number of a request, and of its response, in which an error text follows."""
MESSAGE_BYTES = 1 << 16
ALIGNMENT = 64
LEAST_LIMIT_S, HANG_RUNS = 2.0, 50
"""A run hangs if it takes longer than both this time and this many runs on accelerator and CPU."""
CLOSE_S = 5.0
"""Time in which the child must end by itself: some devices stay unusable after a process that was killed."""
GRACE_S = 1.0
"""Time after the child's own timer by which the app waits no longer."""


class WorkerRunner:
    """A variant that a child process runs. One call at a time, as with any runner.

    Raises:
        EngineError: the child did not load it or did not reproduce the golden vectors; or the shapes of its
            outputs depend on the data.
    """

    def __init__(self, bundle: Bundle, variant: Variant, threads: int) -> None:
        inputs, outputs = bundle.shapes[-1]
        if any(spec.is_open for spec in (*inputs, *outputs)):
            raise EngineError("a worker process needs outputs whose shapes do not depend on the data")
        self._number, self._pid, self._is_stuck = 0, os.getpid(), False
        descriptor = os.memfd_create("edgekit-worker")
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            os.ftruncate(descriptor, size_bytes((*inputs, *outputs)))
            memory = mmap.mmap(descriptor, 0)
            serving = (theirs.fileno(), descriptor)
            with probe.started_child(bundle, variant, threads, serving=serving) as (child, folder, limit_s):
                self._child = child
                theirs.close()
                ready = self._receive(limit_s)
                if not ready:
                    self._is_stuck = ready is None
                    self.close()  # waits for its exit code
                    code = None if self._is_stuck else child.returncode
                    raise _load_error(probe.read_result(folder, code, limit_s))
        except BaseException:
            self._channel.close()  # the child then ends by itself, at the latest by its timer
            raise
        finally:
            theirs.close()
            os.close(descriptor)
        described = strict_json.decode(ready or b"", "worker", MESSAGE_BYTES)
        self.device, self.precision = str(described["device"]), str(described["precision"])
        self._facts, self._limit_s = dict(described["facts"]), float(described["limit_s"]) + GRACE_S
        arrays = arrays_in(memory, (*inputs, *outputs))
        self._inputs = list(zip((spec.name for spec in inputs), arrays, strict=False))
        self._outputs = list(zip((spec.name for spec in outputs), arrays[len(inputs) :], strict=True))

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run once.

        Raises:
            EngineError: the engine failed or a check did, or the child crashed or hangs; it is then ended.
        """
        if os.getpid() != self._pid:
            raise EngineError("its worker process belongs to the process that this one was forked from")
        for name, array in self._inputs:
            array[...] = feeds[name]
        self._number += 1
        number = NUMBER.pack(self._number)
        reply: bytes | None = b""
        with contextlib.suppress(OSError):  # it has ended
            self._channel.send(number)
            reply = self._receive(self._limit_s)
            while reply and not reply.startswith(number):  # to a request that was interrupted
                reply = self._receive(self._limit_s)
        if not reply:
            self._is_stuck = reply is None
            raise self._ended()
        if len(reply) > NUMBER.size:
            raise EngineError(reply[NUMBER.size :].decode("utf-8", "replace"))
        return {name: kept_copy(array) for name, array in self._outputs}

    def facts(self) -> dict[str, Json]:
        """Return the facts of the runner in the child, the times of a run there, and its process number."""
        return {**self._facts, "worker_pid": self._child.pid}

    def close(self) -> None:
        """End the child, which frees its device first. One that hangs is killed later, and not waited for."""
        if os.getpid() == self._pid:
            with contextlib.suppress(OSError):
                self._channel.shutdown(socket.SHUT_RDWR)  # a forked process may still have it open
            self._channel.close()
            Background(self._end, "edgekit-worker-end").join(0.0 if self._is_stuck else 2 * CLOSE_S)

    def _end(self) -> None:
        try:
            self._child.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def _receive(self, seconds: float) -> bytes | None:
        """Return the next message; b"" if the child has ended, None if there is none in this time."""
        self._channel.settimeout(seconds)
        try:
            return self._channel.recv(MESSAGE_BYTES)
        except TimeoutError:
            return None
        except ConnectionError:
            return b""

    def _ended(self) -> EngineError:
        limit_s, code = self._limit_s, None
        if not self._is_stuck:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._child.wait(GRACE_S)
        if code == -signal.SIGALRM:  # its own timer
            self._is_stuck, limit_s = True, limit_s - GRACE_S
        name = "" if code is None else f" ({probe.signal_name(-code) if code < 0 else f'exit code {code}'})"
        late = f"no result from its worker process within {limit_s:.3g} s"
        error = EngineError(late if self._is_stuck else f"its worker process ended{name}")
        error.blame = "machine"  # the process is gone, so the request is not tried there again
        return error


def serve(runner: CheckedRunner, signature: Signature, channel: int, memory: int) -> None:
    """Report in the child what it has loaded, and run requests until the app closes the channel.

    Args:
        channel: File descriptor of the socket.
        memory: File descriptor of the memory that has the arrays.
    """
    inputs, outputs = signature
    arrays = arrays_in(mmap.mmap(memory, 0), (*inputs, *outputs))
    feeds = {spec.name: array for spec, array in zip(inputs, arrays, strict=False)}
    into = {spec.name: array for spec, array in zip(outputs, arrays[len(inputs) :], strict=True)}
    limit_s = max(LEAST_LIMIT_S, HANG_RUNS * sum(runner.times_ms) / 1000)
    ready: dict[str, Json] = {"device": runner.device, "precision": runner.precision, "limit_s": limit_s}
    silent = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):  # nobody would read what an engine logs about each run
        os.dup2(silent, stream)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the app's
    with socket.socket(fileno=channel) as requests:
        requests.send(strict_json.encode({**ready, "facts": runner.facts()}))
        end_after(0)
        while number := requests.recv(NUMBER.size):
            end_after(limit_s)
            try:
                for name, output in runner.run(feeds).items():
                    into[name][...] = output
                reply = number
            except Exception as problem:  # an engine may throw anything
                reply = number + reason_of(problem).encode()
            end_after(0)
            requests.send(reply)
        end_after(CLOSE_S)


def end_after(seconds: float) -> None:
    """Let the kernel end this process after a time, even if an engine holds Python's lock. 0 means never."""
    signal.setitimer(signal.ITIMER_REAL, seconds)


def size_bytes(specs: Sequence[TensorSpec]) -> int:
    """Return the size of a memory for arrays one after the other, each at a multiple of ALIGNMENT bytes."""
    return sum(_room(spec) for spec in specs) or ALIGNMENT


def arrays_in(memory: mmap.mmap, specs: Sequence[TensorSpec]) -> list[Array]:
    """Return the arrays in a memory of that size."""
    arrays, offset = [], 0
    for spec in specs:
        arrays.append(np.ndarray(spec.shape, np.dtype(spec.dtype), memory, offset))
        offset += _room(spec)
    return arrays


def _room(spec: TensorSpec) -> int:
    size = math.prod(spec.shape) * np.dtype(spec.dtype).itemsize
    return -(-size // ALIGNMENT) * ALIGNMENT


def _load_error(result: probe.ProbeResult) -> EngineError:
    error = EngineError(result.reason or "its worker process ended")
    error.blame = result.blame
    return error
