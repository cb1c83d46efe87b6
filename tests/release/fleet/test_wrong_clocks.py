"""Rollouts with clocks that are wrong and devices that lie."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.release.fleet.devices import fleets
from edgekit.release.fleet.rollout import judged
from edgekit.release.fleet.rows import EARLIEST, DeviceRow, RowError, Unused, decoded, read_rows
from edgekit.runtime import DeviceReport
from edgekit.runtime.metrics.histogram import MOST
from tests.release.fleet.simulated_fleet import BEGAN, DAY_S, NEW, OLD, snapshot_of


def rows_of(device: str, bad: int, **wrong: Any) -> list[DeviceRow]:
    """500 answers with each bundle, two days each; ``wrong`` is of the new bundle's row."""
    old, new = (
        decoded(DeviceReport(device, "rpi5")(snapshot_of(bundle, DAY_S * since, DAY_S * until, 500, bad)))
        for bundle, since, until in ((OLD, 0, 2), (NEW, 2.01, 4))
    )
    return [old, replace(new, **wrong)]


@cache
def honest(worse: float) -> tuple[DeviceRow, ...]:
    """400 devices, half of which get the new bundle on the second day."""
    rng, found = np.random.default_rng(0), []
    for number in range(400):
        has_it, share = number < 200, float(np.clip(rng.normal(0.05, 0.02), 0, 1))
        bad, later = (int(rng.binomial(500, min(1, each))) for each in (share, share + worse * has_it))
        found += rows_of(f"d{number}", bad, bundle=NEW if has_it else OLD, failed=later)
    return tuple(found)


LIES: dict[str, dict[str, Any]] = {
    "a clock of 1970": {"since": 12.0, "until": 60.0},
    "a clock of 1970 until its network set it": {"since": 12.0},
    "a clock of 2000": {"since": 946_684_800.0, "until": 946_684_860.0},
    "a clock that is a year behind": {"since": BEGAN - 365 * DAY_S, "until": BEGAN - 364 * DAY_S},
    "a clock that is ahead": {"since": 1e12, "until": 1e300},
    "all answers fail": {"failed": 500},
    "no answer takes time": {"times": (500, 5e-324)},
    "answers take hours": {"times": (500, 500 * 16_384.0)},
    "given up": {"given_up": {NEW: "it does not load"}},
}


@pytest.mark.parametrize(("worse", "decision"), [(0.05, "stop"), (0.0, "promote")])
@pytest.mark.parametrize("lie", LIES)
def test_one_device_decides_nothing(lie: str, worse: float, decision: str) -> None:
    """A hundredth of the devices with the new bundle, whether or not they had the old one."""
    for old in ([], [0], [0, 1]):
        rows = [*honest(worse)]
        for number in range(2):
            liar = rows_of(f"liar{number}", 25, **LIES[lie])
            rows += liar if number in old else liar[1:]
        fleet = fleets(rows)["detector"]
        assert fleet.bundles == [OLD, NEW]
        assert judged(fleet, OLD, NEW).decision == decision


@pytest.mark.parametrize(("worse", "decision"), [(0.05, "stop"), (0.0, "promote")])
def test_boards_without_a_battery_count(worse: float, decision: str) -> None:
    """A process that starts before the clock is set has a start of 1970, and rows of today."""
    rows = [replace(row, since=number / 1000) for number, row in enumerate(honest(worse))]
    verdict = judged(fleets(rows)["detector"], OLD, NEW)
    assert (verdict.decision, verdict.findings[0].devices) == (decision, (200, 200))


def test_more_than_a_hundredth_is_seen() -> None:
    """Of 200 devices 3 % fail all: 3 points more. The means are of all but two at each end."""
    rows = [
        replace(row, failed=500) if row.bundle == NEW and i % 66 == 1 else row
        for i, row in enumerate(honest(0.0))
    ]
    (bad, *_) = judged(fleets(rows)["detector"], OLD, NEW).findings
    assert bad.difference > 0.01
    assert bad.decision != "promote"


@pytest.mark.parametrize(("gave_up", "decision"), [(2, "promote"), (12, "stop")])
def test_a_hundredth_that_gives_it_up_stops_nothing(gave_up: int, decision: str) -> None:
    rows = [
        replace(row, given_up={NEW: "x"}) if row.bundle == NEW and int(row.device[1:]) < gave_up else row
        for row in honest(0.0)
    ]
    assert judged(fleets(rows)["detector"], OLD, NEW).decision == decision


def test_rows_of_a_wrong_clock_are_counted(tmp_path: Path) -> None:
    """A day ahead is a time zone; what was sent before EdgeKit was there, or tomorrow, was not."""
    now, good = BEGAN + 9.0, DeviceReport("d", "rpi5")(snapshot_of(OLD, 0.0, 9.0, 300, 0))
    path, contents = tmp_path / "rows.jsonl", []
    for until in (EARLIEST - 1, EARLIEST, now + DAY_S, now + DAY_S + 1, 1e300):
        contents.append(json.dumps({**json.loads(good), "since": 0.0, "until": until}).encode())
    path.write_bytes(b"\n".join(contents))
    unused = Unused()
    assert [row.until for row in read_rows([path], unused, now)] == [EARLIEST, now + DAY_S]
    assert unused == Unused(
        3, f"{path}:1: its device's clock is wrong: it was sent before 2020 or after today"
    )


def test_times_that_add_up_to_too_much_are_no_times() -> None:
    good = json.loads(DeviceReport("d", "rpi5")(snapshot_of(OLD, 0.0, 9.0, 300, 0)))
    good["stages"][0]["sum"] = 300 * MOST
    assert decoded(json.dumps(good).encode()).times == (300, 300 * MOST)
    good["stages"][0]["sum"] = 1e300
    with pytest.raises(RowError, match="the sum of its times is too large for their number"):
        decoded(json.dumps(good).encode())


def test_a_start_is_not_before_the_last_row_of_the_bundle_before() -> None:
    """A clock that the image set years ago, until the network did."""
    rows = rows_of("d", 25)
    (device,) = fleets([rows[0], replace(rows[1], since=BEGAN - 900 * DAY_S)])["detector"].devices.values()
    assert device.first_s(NEW) == rows[0].until
    assert device.first_s(OLD) == BEGAN
    assert device.first_s("c" * 12) is None
