"""The hours of a card."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from edgekit.errors import CardError
from edgekit.processing.card import parse_card
from edgekit.processing.schedule import DAYS, Schedule, read_schedule

MONDAY = datetime(2026, 1, 5)


def test_hours_and_days() -> None:
    schedule = read_schedule({"hours": ["06:00-09:30", "22:00-02:00"], "days": ["tue", "mon"]}, "card")
    assert schedule == Schedule(("06:00-09:30", "22:00-02:00"), ("mon", "tue"))
    found = {
        (day, hour, minute)
        for day in range(5, 12)
        for hour in range(24)
        for minute in (0, 29, 30, 59)
        if schedule.covers(datetime(2026, 1, day, hour, minute))
    }
    expected = {(day, hour, m) for day in (5, 6) for hour in (6, 7, 8) for m in (0, 29, 30, 59)}
    expected |= {(day, 9, minute) for day in (5, 6) for minute in (0, 29)}
    expected |= {(day, hour, m) for day in (5, 6) for hour in (22, 23) for m in (0, 29, 30, 59)}
    expected |= {(day, hour, m) for day in (6, 7) for hour in (0, 1) for m in (0, 29, 30, 59)}
    assert found == expected
    whole_day = read_schedule({"hours": ["00:00-24:00"]}, "card")
    assert all(whole_day.covers(MONDAY.replace(hour=hour)) for hour in range(24))


def test_a_card_keeps_it() -> None:
    table: dict[str, Any] = {
        "title": "m",
        "inputs": {"x": {"kind": "tensor", "shape": [1, 3]}},
        "schedule": {"hours": ["06:00-09:30"]},
    }
    card = parse_card(table)
    assert card.schedule == Schedule(("06:00-09:30",))
    assert card.as_json()["schedule"] == table["schedule"]
    assert parse_card(card.as_json()) == card
    table["schedule"] = {"hours": ["06:00-09:30"], "days": ["sun", "mon"]}
    assert parse_card(table).as_json()["schedule"] == {"hours": ["06:00-09:30"], "days": ["mon", "sun"]}


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ([], "card must be a table, not a list"),
        ({}, "card has no hours; it must be a list"),
        ({"hours": []}, 'card.hours has None; it must be a list of hours, e.g. ["06:00-09:30"]'),
        ({"hours": ["6-9"]}, "card.hours has '6-9'; it must be a list of hours, e.g. [\"06:00-09:30\"]"),
        ({"hours": [6]}, 'card.hours has 6; it must be a list of hours, e.g. ["06:00-09:30"]'),
        ({"hours": ["06:00-24:30"]}, "card.hours has '06:00-24:30'; it must be a list of hours"),
        ({"hours": ["06:00-06:00"]}, "card.hours has '06:00-06:00'; it must be a list of hours"),
        ({"hours": ["06:00-07:00"], "days": ["monday"]}, "card.days is ['monday']; it must be a list of mon"),
        ({"hours": ["06:00-07:00"], "days": []}, "card.days is []; it must be a list of mon, tue"),
        ({"hours": ["06:00-07:00"], "day": "mon"}, "card has an unknown key 'day'"),
    ],
)
def test_what_is_wrong_is_told(table: Any, told: str) -> None:
    with pytest.raises(CardError) as error:
        read_schedule(table, "card")
    assert str(error.value).startswith(told)
    assert len(DAYS) == 7
