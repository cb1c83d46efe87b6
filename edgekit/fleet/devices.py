"""Rows added up: what each device did with each bundle, over the time that its rows cover."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from edgekit.fleet.rows import Row


class Amounts(NamedTuple):
    """What was counted; cumulative, or in an interval."""

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


class Interval(NamedTuple):
    """What a device did between two of its rows."""

    start: float
    end: float
    amounts: Amounts


@dataclass
class _Process:
    """One process of a device with one bundle."""

    last: Row
    points: dict[float, Amounts] = field(default_factory=dict)

    def add(self, row: Row) -> None:
        self.points[row.until] = amounts_of(row)
        if row.until >= self.last.until:
            self.last = row

    @property
    def intervals(self) -> Iterator[Interval]:
        start, before = self.last.since, Amounts()
        for until, amounts in sorted(self.points.items()):
            # Counts never fall: a row in which one does contradicts the one before.
            if all(now >= was for now, was in zip(amounts, before, strict=True)):
                yield Interval(start, until, amounts.less(before))
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

    def add(self, row: Row) -> None:
        key = row.bundle, row.since
        if key not in self.processes:
            self.processes[key] = _Process(row)
        self.processes[key].add(row)
        if row.until >= self.until:
            self.device_class, self.channel = row.device_class, row.channel
            self.until, self.given_up = row.until, row.given_up

    @property
    def newest(self) -> Row:
        """Its last row."""
        return max((process.last for process in self.processes.values()), key=lambda row: row.until)

    def last_rows(self, bundle: str) -> list[Row]:
        """The last row of each process that ran a bundle."""
        return [process.last for (digest, _), process in self.processes.items() if digest == bundle]

    def first_s(self, bundle: str) -> float | None:
        """When it ran a bundle first; None: never."""
        return min((row.since for row in self.last_rows(bundle)), default=None)

    def intervals(self, bundle: str) -> list[Interval]:
        """What it did with a bundle, the oldest first."""
        found = [
            interval
            for (digest, _), process in self.processes.items()
            if digest == bundle
            for interval in process.intervals
        ]
        return sorted(found, key=lambda interval: interval.end)


@dataclass(frozen=True)
class Fleet:
    """The devices of one model.

    Attributes:
        model: The model.
        devices: By name.
    """

    model: str
    devices: Mapping[str, Device]

    @property
    def bundles(self) -> list[str]:
        """Digests, the one that was started first by any device first."""
        first: dict[str, float] = {}
        for device in self.devices.values():
            for bundle, since in device.processes:
                first[bundle] = min(since, first.get(bundle, since))
        return sorted(first, key=lambda bundle: (first[bundle], bundle))


def fleets(rows: Iterable[Row]) -> dict[str, Fleet]:
    """Rows in any order, repeated or not, by model."""
    found: dict[str, dict[str, Device]] = {}
    for row in rows:
        devices = found.setdefault(row.model, {})
        if row.device not in devices:
            devices[row.device] = Device(row.device)
        devices[row.device].add(row)
    return {model: Fleet(model, found[model]) for model in sorted(found)}


def amounts_of(row: Row) -> Amounts:
    """The cumulative counts of a row."""
    return Amounts(row.answers, row.failed, row.fallback, *row.times, *row.scores)
