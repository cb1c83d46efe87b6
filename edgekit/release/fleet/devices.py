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
class _Process:
    last: DeviceRow
    first_sent: float = math.inf
    points: dict[float, Amounts] = field(default_factory=dict)

    def add(self, row: DeviceRow) -> None:
        self.points[row.until] = amounts_of(row)
        self.first_sent = min(self.first_sent, row.until)
        if row.until >= self.last.until:
            self.last = row

    def intervals(self, start: float) -> Iterator[DeviceInterval]:
        """Return the counts between its rows, from its start on."""
        before = Amounts()
        for until, amounts in sorted(self.points.items()):
            # Counts never fall: a row in which one does contradicts the one before.
            if all(now >= was for now, was in zip(amounts, before, strict=True)):
                yield DeviceInterval(start, until, amounts.less(before))
                start, before = until, amounts


@dataclass
class Device:
    """One device of a model."""

    name: str
    device_class: str = ""
    channel: str = ""
    until: float = 0.0
    given_up: Mapping[str, str] = field(default_factory=dict)
    processes: dict[tuple[str, float], _Process] = field(default_factory=dict)

    def add(self, row: DeviceRow) -> None:
        key = row.bundle, row.since
        if key not in self.processes:
            self.processes[key] = _Process(row)
        self.processes[key].add(row)
        if row.until >= self.until:
            self.device_class, self.channel = row.device_class, row.channel
            self.until, self.given_up = row.until, row.given_up

    @property
    def newest(self) -> DeviceRow:
        """Its last row."""
        return max((process.last for process in self.processes.values()), key=lambda row: row.until)

    def last_rows(self, bundle: str) -> list[DeviceRow]:
        """Return the last row of each process that ran a bundle."""
        return [process.last for (digest, _), process in self.processes.items() if digest == bundle]

    def start_s(self, bundle: str, process: _Process) -> float:
        """Return the start of one of its processes, corrected if its own rows contradict it."""
        since = process.last.since if process.last.since >= EARLIEST else process.first_sent
        before = (
            other.last.until
            for (digest, _), other in self.processes.items()
            if digest != bundle and other.last.until <= process.first_sent
        )
        return max([since, *before])

    def first_s(self, bundle: str) -> float | None:
        """Return the time at which it first ran a bundle, or None."""
        starts = (
            self.start_s(digest, entry) for (digest, _), entry in self.processes.items() if digest == bundle
        )
        return min(starts, default=None)

    def intervals(self, bundle: str) -> list[DeviceInterval]:
        """Return its counts with a bundle by interval, the oldest first."""
        unsorted = [
            interval
            for (digest, _), process in self.processes.items()
            if digest == bundle
            for interval in process.intervals(self.start_s(bundle, process))
        ]
        return sorted(unsorted, key=lambda interval: interval.end)


@dataclass(frozen=True)
class Fleet:
    """The devices of one model."""

    model: str
    devices: Mapping[str, Device]

    @property
    def bundles(self) -> list[str]:
        """Return the bundles' digests, in the order of their first start."""
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
    devices_by_model: dict[str, dict[str, Device]] = {}
    for row in rows:
        devices = devices_by_model.setdefault(row.model, {})
        if row.device not in devices:
            devices[row.device] = Device(row.device)
        devices[row.device].add(row)
    return {model: Fleet(model, devices_by_model[model]) for model in sorted(devices_by_model)}


def amounts_of(row: DeviceRow) -> Amounts:
    """Return the cumulative counts of a row."""
    return Amounts(row.answers, row.failed, row.fallback, *row.times, *row.scores)
