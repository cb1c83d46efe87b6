"""The children that a test started: those of this process that were not there before it."""

from __future__ import annotations

from tests.fixtures import child_processes

EARLIER: set[int] = set()


def children() -> list[int]:
    return [pid for pid in child_processes.children() if pid not in EARLIER]
