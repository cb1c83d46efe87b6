"""A clock that stands still until a test moves it."""

from __future__ import annotations

import pytest


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of the cooldowns, in seconds."""
    clock = [1000.0]
    monkeypatch.setattr("edgekit.runtime.fallback.variant_health.monotonic", lambda: clock[0])
    return clock
