"""Questions to a server, each asked in a thread of its own, so that nobody has to wait for the answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from edgekit.runtime.remote.inference_protocol import Client
from edgekit.tensors import Array

CONNECTIONS = 4
"""Requests that a server has not answered yet. Names that cannot be resolved hold a thread for up to half a
minute, whatever the deadline: beyond so many the device answers alone."""
CLOSE_S = 2.0
"""That closing waits for threads; one that resolves a name takes longer, and is left behind."""


class Call:
    """One question to a server, and what came of it."""

    def __init__(self, act: Callable[[Client], dict[str, Array] | None]) -> None:
        self.outputs: dict[str, Array] | None = None
        self.problem = ""
        self._act = act
        self._done = threading.Event()

    def wait(self, until_s: float) -> bool:
        """Wait, but not for longer. True: there are outputs."""
        self._done.wait(max(0.0, until_s - time.monotonic()))
        return self.outputs is not None

    def missing(self, began_s: float) -> str:
        """Why there are no outputs."""
        if self.problem:
            return f"the server failed: {self.problem}"
        return f"the server had not answered after {1000 * (time.monotonic() - began_s):.0f} ms"

    def serve(self, client: Client) -> None:
        """Ask, in the thread that has the connection."""
        try:
            self.outputs = self._act(client)
        except Exception as problem:  # whatever a server does, a thread must not end by it
            self.problem = str(problem) or type(problem).__name__
        finally:
            self._done.set()


class Calls:
    """The threads that wait for a server, each with a connection of its own; made when needed."""

    def __init__(self, client: Callable[[], Client]) -> None:
        self._client = client
        self._asked: SimpleQueue[Call | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._under_way = 0
        self._closed = False

    @property
    def free(self) -> bool:
        """Whether one more may begin."""
        return self._under_way < CONNECTIONS and not self._closed

    def begin(self, call: Call) -> None:
        """Hand a question to a thread, a new one where all are at work."""
        with self._lock:
            self._under_way += 1
            if self._under_way > len(self._threads):
                thread = threading.Thread(target=self._serve, name="edgekit-remote", daemon=True)
                self._threads.append(thread)
                thread.start()
        self._asked.put(call)

    def close(self) -> None:
        """Wait for the threads, but not for long."""
        self._closed = True
        threads, self._threads = self._threads, []
        for _ in threads:
            self._asked.put(None)
        end_s = time.monotonic() + CLOSE_S
        for thread in threads:
            thread.join(max(0.0, end_s - time.monotonic()))

    def _serve(self) -> None:
        client = self._client()
        while (call := self._asked.get()) is not None:
            call.serve(client)
            with self._lock:
                self._under_way -= 1
            del call
        client.close()
