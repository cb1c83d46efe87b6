from __future__ import annotations

import pytest

from edgekit.errors import UsageError
from edgekit.release.updates.polling import interval_s, poll


class StopPollingError(Exception):
    pass


def test_runs_are_spread_and_back_off_while_they_fail() -> None:
    results = [True, False, False, False, False, False, True, True]
    waits: list[float] = []

    def run() -> bool:
        if not results:
            raise StopPollingError
        return results.pop(0)

    with pytest.raises(StopPollingError):
        poll(run, 100.0, waits.append, lambda low, high: high)
    assert waits == [10.0, 150.0, 300.0, 600.0, 1200.0, 1200.0, 1200.0, 150.0, 150.0]


@pytest.mark.parametrize("text", ["", "1", "5s", "1w", "-1h", "1h30m"])
def test_what_is_no_interval(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not an interval; use e.g. 15m, 1h or 1d, at least 10s"):
        interval_s(text)
