"""A worker process, seen from the server: started, given frames without ever waiting for it, replaced."""

from __future__ import annotations

import json
import mmap
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from edgekit.runtime.session_state import Active
from edgekit.serve.frigate.messages import DTYPES, ROWS_BYTES, TENSOR_BYTES, FrameTensor, is_valid
from edgekit.serve.frigate.worker_process import READY_BYTES, REQUEST, RESPONSE

HANG_S = 10.0
"""Time after which a worker that does not return is killed and started again."""
LOAD_S = 120.0
"""Time for a start: the engine may compile the model for an accelerator."""
FIRST_PAUSE_S, LAST_PAUSE_S = 0.5, 60.0
"""Rest of a worker that failed: the first one, doubled after each further failure."""
USUAL_RATIO, USUAL_S = 1.5, 0.02
"""A frame is unusual if it takes longer than the longest recent one by this ratio, and this time."""
STEADY_S = 30.0
"""Time without a failure after which the next pause is the first one again."""


class FrameResult(NamedTuple):
    """Rows of a frame. None means that it could not be computed."""

    number: int
    rows: bytes | None


class Worker:
    """One worker process. Each method returns at once.

    Attributes:
        name: Name for people.
        active: The variant that it runs, or None while it loads.
        target: Target of that variant.
        error: Reason of the last start that failed; "" if none did.
        is_misused: Whether that was an option's fault.
        took_s: Longest recent time of a frame that was not late. None means that it has computed none.
        rests_until_s: Time until which it gets a frame only if no other worker can take it.
        events: Changes to be reported, oldest first.
    """

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self.name, self.options = name, dict(options)
        self.active: Active | None = None
        self.target = self.error = ""
        self.is_misused = False
        self.took_s: float | None = None
        self.events: list[str] = []
        self.number: int | None = None
        self.sent_s = self.start_s = self.rests_until_s = self._pause_s = self._failed_s = 0.0
        self._is_late = self._has_served = False
        self._process: subprocess.Popen[bytes] | None = None
        self._ended: list[subprocess.Popen[bytes]] = []
        self.channel: socket.socket | None = None
        memory = os.memfd_create("edgekit-frames")
        os.ftruncate(memory, TENSOR_BYTES)
        self._memory, self._frames = memory, mmap.mmap(memory, TENSOR_BYTES)

    def start(self) -> None:
        """Start the process."""
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel.setblocking(False)
        command = [sys.executable, "-m", "edgekit.serve.frigate.worker_process"]
        command += [str(theirs.fileno()), str(self._memory), json.dumps(self.options)]
        with theirs:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(), self._memory)
            )
        self.sent_s, self.number, self._is_late = time.monotonic(), None, False
        self._has_served = False

    @property
    def pid(self) -> int:
        return 0 if self._process is None else self._process.pid

    @property
    def is_idle(self) -> bool:
        """Whether it can take a frame."""
        return self.active is not None and self.number is None

    def expected_s(self, limit_s: float) -> float:
        """Return the time until which the frame that it runs is worth waiting for; 0 if it runs none."""
        if self.number is None:
            return 0.0
        usual_s = limit_s if self.took_s is None else max(USUAL_RATIO * self.took_s, USUAL_S)
        return self.sent_s + min(usual_s, limit_s)

    def give(self, number: int, tensor: FrameTensor | None, other_order: bool = False) -> None:
        """Give it a frame. None means the one before, once more."""
        assert self.channel is not None
        if tensor is not None:
            self._frames[: len(tensor.content)] = tensor.content
            self._shape = DTYPES.index(tensor.dtype), tensor.shape
        dtype, shape = self._shape
        self.number, self.sent_s, self._is_late = number, time.monotonic(), False
        try:
            self.channel.send(REQUEST.pack(number, dtype, other_order, *shape))
        except OSError:
            self._replace("ended")

    def receive(self) -> list[FrameResult]:
        """Return the results that have come."""
        results: list[FrameResult] = []
        while self.channel is not None:
            try:
                message = self.channel.recv(READY_BYTES)
            except BlockingIOError:
                break
            except OSError:
                message = b""
            if not message:
                self._replace(f"can't be used: {self.error}" if self.error else "ended")
            elif self.active is None:
                self._read_ready(message)
            else:
                results += self._read_result(message)
        return results

    def _read_ready(self, message: bytes) -> None:
        ready = json.loads(message)
        if "error" in ready:
            self.error, self.is_misused = ready["error"], ready["is_misused"]
            return
        self.active, self.target, self.error = Active(*ready["active"]), ready["target"], ""
        self.events.append(
            f"{self.name}: {self.active.variant} on {self.active.engine}, {self.active.device}"
        )

    def _read_result(self, message: bytes) -> list[FrameResult]:
        rows = message[RESPONSE.size :]
        if len(message) != RESPONSE.size + ROWS_BYTES or not is_valid(rows):
            self._replace("sent something else than rows")
            return []
        number, is_computed, took_s = RESPONSE.unpack_from(message)
        self.number, self._has_served = None, True
        if self._is_late:  # it returned after all
            self.rests_until_s = time.monotonic() + self._next_pause_s()
        else:
            self.took_s = max(took_s, 0.9 * (self.took_s or 0.0))
        return [FrameResult(number, rows if is_computed else None)]

    def check(self, now_s: float, limit_s: float) -> None:
        """Note a frame that takes longer than its limit, and start the process again if it hangs or ended."""
        self._ended = [process for process in self._ended if process.poll() is None]
        if self.channel is None:
            if now_s >= self.start_s:
                self.start()
        elif self.active is None:
            if now_s > self.sent_s + LOAD_S:
                self._replace(f"did not load within {LOAD_S:g} s")
        elif self.number is not None and now_s > self.sent_s + HANG_S:
            self._replace(f"hung for {HANG_S:g} s")
        elif self.number is not None and now_s > self.sent_s + limit_s and not self._is_late:
            self._is_late = True
            self.events.append(f"{self.name}: a frame takes longer than {1000 * limit_s:.0f} ms")

    def _next_pause_s(self) -> float:
        now_s = time.monotonic()
        steady = now_s > self._failed_s + self._pause_s + STEADY_S
        self._pause_s = FIRST_PAUSE_S if steady else min(2 * self._pause_s, LAST_PAUSE_S)
        self._failed_s = now_s
        return self._pause_s

    def _replace(self, reason: str) -> None:
        """Kill the process, which is not waited for: one that waits for its driver can't be killed.

        One that has served is started again soon, so that it can stand in while it rests.
        """
        if self._process is not None:
            self._process.kill()
            self._ended.append(self._process)
        self.stop_channel()
        pause_s = self._next_pause_s()
        self.rests_until_s = time.monotonic() + pause_s
        wait_s = FIRST_PAUSE_S if self._has_served else pause_s
        self.start_s = time.monotonic() + wait_s
        self.events.append(f"{self.name} {reason}; it is started again in {wait_s:g} s")

    def stop_channel(self) -> None:
        """Close the channel, which ends the process once it is idle."""
        if self.channel is not None:
            self.channel.close()
        self.channel = self.active = self.number = None

    def close(self) -> None:
        """End the process."""
        self.stop_channel()
        if self._process is not None:
            self._process.kill()
        self._frames.close()
        os.close(self._memory)
