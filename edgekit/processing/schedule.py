"""Schedule of a card: the local hours in which a server keeps a model in memory."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from edgekit.errors import CardError
from edgekit.system.formats.strict_tables import get, only
from edgekit.tensor_spec import Json

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-4]):([0-5]\d)")


@dataclass(frozen=True)
class Schedule:
    """Local hours in which a model is needed.

    Attributes:
        hours: Time ranges, e.g. ``06:00-09:30``. A range that ends before it begins passes midnight.
        days: Days on which the ranges begin.
    """

    hours: Sequence[str]
    days: Sequence[str] = DAYS

    def covers(self, now: datetime) -> bool:
        """Return whether a local time is within the hours.

        >>> night = Schedule(("22:00-05:00",), ("fri",))
        >>> [night.covers(datetime(2026, 1, day, 4)) for day in (2, 3)]  # a Friday and a Saturday
        [False, True]
        """
        minute, today = 60 * now.hour + now.minute, DAYS[now.weekday()]
        yesterday = DAYS[(now - timedelta(days=1)).weekday()]
        for interval in self.hours:
            begin, end = _minutes(interval)
            if begin < end:
                is_in = today in self.days and begin <= minute < end
            else:
                is_in = (today in self.days and minute >= begin) or (yesterday in self.days and minute < end)
            if is_in:
                return True
        return False

    def as_json(self) -> dict[str, Json]:
        table: dict[str, Json] = {"hours": list(self.hours)}
        return table if tuple(self.days) == DAYS else {**table, "days": list(self.days)}


def read_schedule(table: Json, location: str) -> Schedule:
    """Read the schedule of a card.

    Raises:
        CardError: it is malformed.
    """
    only(table, ("hours", "days"), location)
    assert isinstance(table, Mapping)
    hours = get(table, "hours", list, location)
    for interval in hours or [None]:
        if not isinstance(interval, str) or not _HOURS.fullmatch(interval) or _is_wrong(interval):
            raise CardError(
                f'{location}.hours has {interval!r}; it must be a list of hours, e.g. ["06:00-09:30"]'
            )
    days = get(table, "days", list, location) if "days" in table else list(DAYS)
    if not days or any(day not in DAYS for day in days) or len(set(days)) < len(days):
        raise CardError(f"{location}.days is {days!r}; it must be a list of {', '.join(DAYS)}, each once")
    return Schedule(tuple(hours), tuple(day for day in DAYS if day in days))


def _is_wrong(hours: str) -> bool:
    begin, end = _minutes(hours)
    return end > 24 * 60 or begin == end


def _minutes(hours: str) -> tuple[int, int]:
    """Begin and end in minutes of the day."""
    match = _HOURS.fullmatch(hours)
    assert match is not None
    first, second, third, fourth = map(int, match.groups())
    return 60 * first + second, 60 * third + fourth
