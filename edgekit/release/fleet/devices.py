"""Aggregated rows: the counts of each device with each bundle, over the time that its rows cover.

Device clocks can be wrong: a board without a battery reports 1970 until its network sets the clock. A process
with an impossible start is assumed to have started with its first row. No process of a bundle starts before
the last row of another bundle that precedes its own first row. The first hundredth of many starts is ignored
(:func:`first_time`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from edgekit.release.fleet.rows import EARLIEST, DeviceRow

IGNORED = 0.01
"""Share of the devices that may report anything without changing a decision."""


class Amounts(NamedTuple):
    """Counts of a device, cumulative or in an interval."""

    answers: int = 0
    failed: int = 0
    fallback: int = 0
    times: int = 0
    seconds: float = 0.0
    scores: int = 0
    score_sum: float = 0.0

    def plus(self, other: Amounts) -> Amounts:
        return Amounts._make(a + b for a, b in zip(self, other, strict=True))

    def less(self, other: Amounts) -> Amounts:
        return Amounts._make(a - b for a, b in zip(self, other, strict=True))


class DeviceInterval(NamedTuple):
    """Counts of a device between two of its rows."""

    start: float
    end: float
    amounts: Amounts


@dataclass
class Device:
    """One device of a model.

    Attributes:
        processes: Bundle and start of each process -> its rows by the time of sending.
    """

    name: str
    processes: dict[tuple[str, float], dict[float, DeviceRow]] = field(default_factory=dict)

    def add(self, row: DeviceRow) -> None:
        self.processes.setdefault((row.bundle, row.since), {})[row.until] = row

    @property
    def newest(self) -> DeviceRow:
        """Its last row."""
        return max((rows[max(rows)] for rows in self.processes.values()), key=lambda row: row.until)

    def last_rows(self, bundle: str) -> list[DeviceRow]:
        return [rows[max(rows)] for (digest, _), rows in self.processes.items() if digest == bundle]

    def _processes_of(self, bundle: str) -> Iterator[tuple[float, Mapping[float, DeviceRow]]]:
        """Yield start and rows of a bundle's processes, the start corrected if other rows contradict it."""
        ends = [max(rows) for (digest, _), rows in self.processes.items() if digest != bundle]
        for (digest, since), rows in self.processes.items():
            if digest == bundle:
                first = min(rows)
                start = since if since >= EARLIEST else first
                yield max([start, *(end for end in ends if end <= first)]), rows

    def first_s(self, bundle: str) -> float | None:
        return min((start for start, _ in self._processes_of(bundle)), default=None)

    def intervals(self, bundle: str) -> list[DeviceInterval]:
        """Return its counts with a bundle by interval, the oldest first."""
        intervals = []
        for start, rows in self._processes_of(bundle):
            before = Amounts()
            for until in sorted(rows):
                amounts = amounts_of(rows[until])
                # Counts never fall: a row in which one does contradicts the one before.
                if all(now >= was for now, was in zip(amounts, before, strict=True)):
                    intervals.append(DeviceInterval(start, until, amounts.less(before)))
                    start, before = until, amounts
        return sorted(intervals, key=lambda interval: interval.end)


@dataclass(frozen=True)
class Fleet:
    """The devices of one model, by name."""

    model: str
    devices: Mapping[str, Device]

    @property
    def bundles(self) -> list[str]:
        starts: dict[str, list[float]] = {}
        for device in self.devices.values():
            for bundle in {digest for digest, _ in device.processes}:
                starts.setdefault(bundle, []).append(device.first_s(bundle) or 0.0)
        return sorted(starts, key=lambda bundle: (first_time(starts[bundle]), bundle))


def ignored(devices: int) -> int:
    """Return how many of a number of devices may report anything without changing a decision.

    >>> ignored(0), ignored(1), ignored(100), ignored(101)
    (0, 1, 1, 2)
    """
    return math.ceil(IGNORED * devices)


def first_time(starts: Iterable[float]) -> float:
    """Return the first of some devices' times after those that are ignored; infinity if there are none."""
    times = sorted(starts)
    return times[min(ignored(len(times)), len(times) - 1)] if times else math.inf


def fleets(rows: Iterable[DeviceRow]) -> dict[str, Fleet]:
    """Group rows by model. They may be in any order and repeated."""
    models: dict[str, dict[str, Device]] = {}
    for row in rows:
        models.setdefault(row.model, {}).setdefault(row.device, Device(row.device)).add(row)
    return {model: Fleet(model, models[model]) for model in sorted(models)}


def amounts_of(row: DeviceRow) -> Amounts:
    return Amounts(row.answers, row.failed, row.fallback, *row.times, *row.scores)
