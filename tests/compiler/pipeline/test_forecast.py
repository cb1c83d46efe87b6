"""The forecast of a build: numbered steps, and the time left from the parts that have ended."""

from __future__ import annotations

import pytest

from edgekit.compiler.pipeline.forecast import NEAREST, OPTIMIZED, Forecast, part
from edgekit.system.progress import Stage


def forecasts(
    monkeypatch: pytest.MonkeyPatch, expected: dict[str, dict[str, float]], events: list[tuple[float, Stage]]
) -> list[float | None]:
    """Return the seconds left after each event."""
    heard: list[Stage] = []
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    steps = ["calibrated", "searched", "timed"]
    forecast = Forecast(heard.append, steps, expected)
    for clock[0], event in events:
        forecast(event)
    assert [(stage.step, stage.steps) for stage in heard] == [
        (steps.index(event.name) + 1, 3) for _, event in events
    ]
    return [stage.left_s for stage in heard]


def test_parts_that_have_ended_tell_the_time_of_those_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {
        "calibrated": {"calibrated": 1.0}, "ort int8": {NEAREST: 3.0, OPTIMIZED: 1.0}, "timed": {"timed": 1.0}
    }  # fmt: skip

    def candidate(kind: str, number: int, done: int = 0) -> Stage:
        return Stage("searched", "ort", None, done, 100, part=part("ort int8", kind, number))

    lefts = forecasts(monkeypatch, expected, [
        (0.0, Stage("calibrated", "")),  # nothing tells how long it takes
        (10.0, Stage("calibrated", "", 10.0)),
        (10.0, candidate(NEAREST, 0)),
        (14.0, candidate(NEAREST, 1)),
        (18.0, candidate(OPTIMIZED, 2)),  # one quick candidate is left
        (28.0, candidate(OPTIMIZED, 2, 50)),
        (48.0, Stage("timed", "")),
        (50.0, Stage("timed", "", 2.0)),
    ])  # fmt: skip
    optimized_s, timed_s = 1.65 * 10 + 2, 4.0  # half of its layers are a quarter of its time
    rest_s = optimized_s + timed_s
    expected_s = [
        6.0 + rest_s,
        6.0 + rest_s,
        8.0 + rest_s,
        4.0 + rest_s,
        4.0 + 13.875 + timed_s,
        timed_s,
        0.0,
    ]
    assert lefts == pytest.approx([None, *expected_s])


def test_a_longer_search_or_a_late_part_does_not_end_the_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    def candidate(number: int) -> Stage:
        return Stage("searched", "ort", part=part("ort int8", NEAREST, number))

    lefts = forecasts(
        monkeypatch,
        {"ort int8": {NEAREST: 1.0}},
        [(0.0, Stage("calibrated", "", 1.0)), (0.0, candidate(0)), (2.0, candidate(1)), (12.0, candidate(1))],
    )
    assert all(left is None or left > 0 for left in lefts)
    assert lefts[-1] == pytest.approx(0.5 * 2.0 + 0.1 * 10.0)
