"""Put metrics snapshots into an outbox periodically, so that a device that is offline for weeks loses no
counts.

    outbox = Outbox("metrics", HttpSink("http://collector:4318/v1/metrics", content_type=otlp.JSON))
    with MetricsExporter(metrics, outbox, otlp.body) as exporter:
        ...

One thread while it is open.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping

from edgekit.errors import UsageError
from edgekit.runtime.metrics.metrics import Metrics
from edgekit.runtime.outbox.outbox import Outbox
from edgekit.system.closing import Closing
from edgekit.system.formats import strict_json
from edgekit.tensor_spec import Json

EVERY_S = 60.0
OFFLINE_S, RARELY_S = 86_400.0, 3600.0
"""After a day without a delivery one row an hour is enough, because counts are cumulative."""

Encode = Callable[[Mapping[str, Json]], bytes]


def plain(snapshot: Mapping[str, Json]) -> bytes:
    """Return a snapshot in JSON, unchanged."""
    return strict_json.encode(dict(snapshot))


class MetricsExporter(Closing):
    """Puts snapshots of metrics into an outbox, as rows of the kind ``metric``.

    Args:
        outbox: The destination; it must outlive this.
        encode: Encodes a row: ``plain``, or ``otlp.body`` for a collector.
        every_s: Interval; an hour after a day without a delivery.
        clock: Monotonic, in seconds.

    Raises:
        UsageError: ``every_s`` is not positive.
    """

    def __init__(
        self,
        metrics: Metrics,
        outbox: Outbox,
        encode: Encode = plain,
        *,
        every_s: float = EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not every_s > 0:
            raise UsageError(f"every_s must be positive, not {every_s!r}")
        self._metrics, self._outbox, self._encode = metrics, outbox, encode
        self._every_s, self._clock = every_s, clock
        self._delivered, self._online_s = -1, clock()
        self._closing = threading.Event()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._keep_putting, name="edgekit-spool", daemon=True)
        self._thread.start()

    def put(self) -> None:
        """Put one row now.

        Raises:
            UsageError: the outbox is closed, or the row is too large for it.
        """
        self._outbox.put(self._encode(self._metrics.snapshot()), kind="metric")

    def wait_s(self) -> float:
        """Return the seconds until the next row."""
        try:
            delivered = self._outbox.counts()["delivered"]
        except (OSError, sqlite3.Error):  # an error of its disk; it recovers by itself
            delivered = self._delivered
        now_s = self._clock()
        if delivered != self._delivered:
            self._delivered, self._online_s = delivered, now_s
        return self._every_s if now_s - self._online_s < OFFLINE_S else max(self._every_s, RARELY_S)

    def close(self) -> None:
        """Put a last row, and end. Closing twice is fine; in a forked process nothing is done."""
        if os.getpid() == self._pid and not self._closing.is_set():
            self._closing.set()
            self._thread.join()
            self.put()

    def _keep_putting(self) -> None:
        while not self._closing.wait(self.wait_s()):
            try:
                self.put()
            except UsageError:  # the outbox was closed before this
                return
