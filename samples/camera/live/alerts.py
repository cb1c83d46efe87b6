"""Alerts with their pictures, delivered through an outbox: stored first, sent when the network is there.

Rows survive a restart. Each has a key of its own, by which the receiver drops repetitions, so that an alert
arrives exactly once however often the connection breaks.
"""

from __future__ import annotations

import base64
import secrets
import threading
import time
from collections import deque
from itertools import count
from pathlib import Path
from typing import Any

from edgekit.runtime import Outbox, Sink
from edgekit.runtime.outbox.rows import Parcel
from edgekit.runtime.outbox.sinks import SinkDownError
from edgekit.system.formats import strict_json

SHOWN = 50
"""Alerts that the page lists; older ones are in the backend."""
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 5.0
"""Between two attempts while the network is away; doubled each time."""


class Network:
    """The way to the backend, with a plug that can be pulled.

    Args:
        sink: The backend.

    Attributes:
        pulled: Whether nothing gets out.
        online: Whether the last attempt arrived; None before the first.
        taken: Keys of the rows that the backend took, the oldest first; whoever drives the outbox empties it.
    """

    def __init__(self, sink: Sink) -> None:
        self.pulled = False
        self.online: bool | None = None
        self.taken: list[str] = []
        self._sink = sink

    def send(self, parcel: Parcel) -> None:
        """As any sink; refuses while the plug is pulled.

        Raises:
            SinkDownError: nothing gets out, or the backend says so.
        """
        if self.pulled:
            self.online = False
            raise SinkDownError("the network is pulled (a switch of the page)")
        try:
            self._sink.send(parcel)
        except BaseException:
            self.online = False
            raise
        self.online = True
        self.taken.append(parcel.key)

    def close(self) -> None:
        self._sink.close()


class Alerts:
    """The alerts of this run, and a thread that delivers their rows.

    Args:
        folder: Of the outbox; rows of an earlier run are delivered too.
        sink: The backend.
        tell: Called with a sentence when the network goes and comes.
    """

    def __init__(self, folder: Path, sink: Sink, tell: Any) -> None:
        self.network = Network(sink)
        self.outbox = Outbox(folder)
        self._tell = tell
        self._numbers = count(1)
        self._shown: deque[tuple[dict[str, Any], str, bytes]] = deque(maxlen=SHOWN)
        self._sent: deque[str] = deque(maxlen=4 * SHOWN)  # keys, the newest last
        self._wake, self._ending = threading.Event(), False
        self._thread = threading.Thread(target=self._deliver, name="camera-alerts", daemon=True)
        self._thread.start()

    def add(self, zone: str, label: str, seconds: float, picture: bytes) -> int:
        """Raise an alert.

        Args:
            zone: Its name.
            label: What stayed.
            seconds: How long.
            picture: JPEG.
        """
        number, key = next(self._numbers), f"alert-{secrets.token_hex(8)}"
        alert = {"id": number, "time": time.time(), "zone": zone, "label": label, "seconds": seconds}
        body = {**alert, "picture": base64.b64encode(picture).decode("ascii")}
        self.outbox.put(strict_json.encode(body), key=key)
        self._shown.appendleft((alert, key, picture))
        self._wake.set()
        return number

    def picture(self, number: int) -> bytes | None:
        """The JPEG of an alert that is still listed."""
        return next((picture for alert, _, picture in list(self._shown) if alert["id"] == number), None)

    def pull(self, pulled: bool) -> None:
        """Pull the network's plug, or put it back: what waits is then sent at once."""
        self.network.pulled = pulled
        self._wake.set()

    def as_json(self) -> list[dict[str, Any]]:
        sent = set(self._sent)
        return [
            {
                **alert,
                "picture": f"/api/alerts/{alert['id']}.jpg",
                "state": "sent" if key in sent else "queued",
            }
            for alert, key, _ in list(self._shown)
        ]

    def network_json(self) -> dict[str, Any]:
        rows = self.outbox.counts()
        online = not self.network.pulled and self.network.online is not False
        return {
            "online": online,
            "pulled": self.network.pulled,
            "queued": rows["waiting"] + rows["pending"],
            "sent": rows["delivered"],
        }

    def close(self) -> None:
        """Store what was put, and stop; undelivered rows stay for the next run."""
        self._ending = True
        self._wake.set()
        self._thread.join(1.0)
        self.outbox.close()
        self.network.close()

    def _deliver(self) -> None:
        wait_s, known = FIRST_WAIT_S, True
        while not self._ending:
            delivery = self.outbox.deliver(self.network)
            self._sent.extend(self.network.taken)  # now the outbox counts them as delivered, too
            self.network.taken.clear()
            if bool(delivery.down) is known:
                known = not known
                if delivery.down:
                    self._tell(f"offline: {delivery.down}; alerts wait in the outbox")
                elif delivery.delivered:
                    self._tell(f"online again: {delivery.delivered} waiting alerts were sent")
                else:
                    self._tell("online again")
            if delivery.down:
                self._wake.wait(wait_s)
                wait_s = min(2 * wait_s, LONGEST_WAIT_S)
            elif not delivery.delivered:
                self._wake.wait(FIRST_WAIT_S)
            if self._wake.is_set():
                self._wake.clear()
                wait_s = FIRST_WAIT_S
