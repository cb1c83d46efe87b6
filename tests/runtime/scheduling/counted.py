"""Batches whose times are stated, on a session whose runs are counted."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from edgekit.runtime import Session
from edgekit.runtime.scheduling import batching as rooms
from edgekit.runtime.scheduling.batching import Batching
from edgekit.tensor_spec import Array


def takes(monkeypatch: pytest.MonkeyPatch, one_ms: float, many_ms: float) -> list[int]:
    """State the times of a single run and of a batch. Return a list that grows with each measurement."""
    measured: list[int] = []

    def compared(one: Session, batching: Batching, inputs: object) -> tuple[float, float]:
        measured.append(1)
        return one_ms, many_ms

    monkeypatch.setattr(rooms, "compared", compared)
    return measured


class Counted:
    """A session whose runs are counted, and wait until ``open`` is set."""

    def __init__(self, session: Session) -> None:
        self.runs, self.open, self.running = 0, threading.Event(), threading.Event()
        self.open.set()
        self._session, self.bundle, self.active = session, session.bundle, session.active

    def run(self, feeds: Any) -> dict[str, Array]:
        self.runs += 1
        self.running.set()
        assert self.open.wait(10)
        return self._session.run(feeds)
