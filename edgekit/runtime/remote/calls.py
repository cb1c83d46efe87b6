"""Requests to a server, each in a thread of its own, so that the caller need not wait for the response."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from edgekit.runtime.remote.inference_protocol import Client
from edgekit.tensor_spec import Array

CONNECTIONS = 4
"""Maximum number of open requests. A host name that cannot be resolved may block a thread for half a minute,
whatever the deadline; above the limit the device runs alone."""
CLOSE_S = 2.0
"""Timeout for the threads when closing; one that is resolving a name is abandoned."""


class Call:
    """One request to a server, and its result."""

    def __init__(self, act: Callable[[Client], dict[str, Array] | None]) -> None:
        self.outputs: dict[str, Array] | None = None
        self.problem = ""
        self._act = act
        self._done = threading.Event()

    def wait(self, until_s: float) -> bool:
        """Wait until a deadline. True: there are outputs."""
        self._done.wait(max(0.0, until_s - time.monotonic()))
        return self.outputs is not None

    def missing(self, began_s: float) -> str:
        """Return the reason that there are no outputs."""
        if self.problem:
            return f"the server failed: {self.problem}"
        return f"the server did not respond within {1000 * (time.monotonic() - began_s):.0f} ms"

    def serve(self, client: Client) -> None:
        """Run the request, in the thread that has the connection."""
        try:
            self.outputs = self._act(client)
        except Exception as problem:  # no error of a server may end the thread
            self.problem = str(problem) or type(problem).__name__
        finally:
            self._done.set()


class RemoteCalls:
    """The threads for requests to a server, each with its own connection; created on demand.

    Attributes:
        under_way: Number of open requests.
    """

    def __init__(self, client: Callable[[], Client]) -> None:
        self._client = client
        self._queue: SimpleQueue[Call | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self.under_way = 0
        self._closed = False

    @property
    def free(self) -> bool:
        """Return whether another request may start."""
        return self.under_way < CONNECTIONS and not self._closed

    def begin(self, call: Call) -> None:
        """Pass a request to an idle thread, or to a new one."""
        with self._lock:
            self.under_way += 1
            if self.under_way > len(self._threads):
                thread = threading.Thread(target=self._serve, name="edgekit-remote", daemon=True)
                self._threads.append(thread)
                thread.start()
        self._queue.put(call)

    def close(self) -> None:
        """Stop the threads, with a timeout."""
        self._closed = True
        threads, self._threads = self._threads, []
        for _ in threads:
            self._queue.put(None)
        end_s = time.monotonic() + CLOSE_S
        for thread in threads:
            thread.join(max(0.0, end_s - time.monotonic()))

    def _serve(self) -> None:
        client = self._client()
        while (call := self._queue.get()) is not None:
            call.serve(client)
            with self._lock:
                self.under_way -= 1
            del call
        client.close()
