"""An outbox that stores at once, and a sink that keeps what it is sent."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from edgekit.runtime.outbox.outbox import Outbox
from edgekit.runtime.outbox.rows import OutboxLimits, Parcel


class ListSink:
    """Keeps what it is sent; ``fails`` may raise first."""

    def __init__(self, fails: Callable[[Parcel], None] = lambda parcel: None) -> None:
        self.parcels: list[Parcel] = []
        self.fails = fails
        self.closed = False
        self.came = threading.Event()

    def send(self, parcel: Parcel) -> None:
        self.fails(parcel)
        self.parcels.append(parcel)
        self.came.set()

    def close(self) -> None:
        self.closed = True

    @property
    def keys(self) -> list[str]:
        return [parcel.key for parcel in self.parcels]


def quick(folder: Path, limits: OutboxLimits | None = None) -> Outbox:
    return Outbox(folder, limits=limits or OutboxLimits(), commit_s=0.0)


def put_all(outbox: Outbox, *keys: str, kind: str = "result", body: bytes = b"body") -> None:
    for key in keys:
        outbox.put(body, kind, key)
    assert outbox.flush(20)
