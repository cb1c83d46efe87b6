"""The forecast of a build: numbered steps, and the time left from the parts that have ended."""

from __future__ import annotations

import pytest

from edgekit.compiler.evaluate.fidelity import Fidelity, Score
from edgekit.compiler.pipeline.forecast import (
    NEAREST,
    OPTIMIZED,
    REGIONS,
    TEST,
    Forecast,
    candidates_to_come,
    part,
)
from edgekit.compiler.quantize.search.measurement import DEFAULT, QUICK, CandidateConfig, Measurement
from edgekit.system.progress import Stage


def forecasts(
    monkeypatch: pytest.MonkeyPatch,
    expected: dict[str, dict[str, float]],
    events: list[tuple[float, Stage]],
    early_s: float = 0.0,
) -> list[float | None]:
    """Return the seconds left after each event."""
    heard: list[Stage] = []
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0] + 100)
    monkeypatch.setattr("edgekit.compiler.pipeline.forecast.EARLY_S", early_s)
    steps = ["calibrated", "searched", "timed"]
    forecast = Forecast(heard.append, steps, expected)
    for clock[0], event in events:
        forecast(event)
    assert [(stage.step, stage.steps) for stage in heard] == [
        (steps.index(event.name) + 1, 3) for _, event in events
    ]
    assert all((stage.part, stage.to_come) == ("", None) for stage in heard)
    return [stage.left_s for stage in heard]


def candidate(group: str, kind: str, number: int, **to_come: dict[str, float]) -> Stage:
    plan = {name.replace("_", " "): kinds for name, kinds in to_come.items()} or None
    return Stage("searched", group.split()[0], part=part(group, kind, number), to_come=plan)


def test_parts_that_have_ended_tell_the_time_of_those_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {
        "calibrated": {"calibrated": 1.0},
        "ort int8": {NEAREST: 3.0, OPTIMIZED: 1.0},
        "timed": {"compiled": 1.0},
    }
    lefts = forecasts(monkeypatch, expected, [
        (0.0, Stage("calibrated", "")),
        (10.0, Stage("calibrated", "", 10.0)),
        (10.0, candidate("ort int8", NEAREST, 0)),  # nothing tells how long a candidate takes
        (14.0, candidate("ort int8", NEAREST, 1)),
    ])  # fmt: skip
    assert lefts == [None] * 4  # nor a compiled variant
    expected["timed"] = {"timed": 0.0}
    lefts = forecasts(monkeypatch, expected, [
        (10.0, candidate("ort int8", NEAREST, 0)),
        (14.0, candidate("ort int8", NEAREST, 1)),
        (18.0, candidate("ort int8", OPTIMIZED, 2)),  # one quick candidate is left
        (28.0, candidate("ort int8", OPTIMIZED, 2)),
        (48.0, Stage("timed", "")),
    ])  # fmt: skip
    assert lefts[:4] == pytest.approx([None, 4 + 4 + 5 * 4, 5 * 4 + 4, 5 * 4 + 4 - 10])


def test_a_search_tells_how_many_parts_it_expects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after a part of it; a part costs what those of its target cost."""
    expected = {"ort int8": {NEAREST: 9.0}, "tflite int8": {NEAREST: 2.0}}
    lefts = forecasts(monkeypatch, expected, [
        (0.0, candidate("ort int8", NEAREST, 0, ort_int8={NEAREST: 3.0}, other={NEAREST: 99.0})),
        (4.0, Stage("searched", "", to_come={"ort int8": {NEAREST: 1.0}})),
        (4.0, candidate("ort int8", NEAREST, 1, ort_int8={NEAREST: 1.0})),
        (8.0, candidate("tflite int8", NEAREST, 0)),
        (9.0, candidate("tflite int8", NEAREST, 1)),
    ])  # fmt: skip
    assert lefts[2:] == pytest.approx([4 + 2 * 4, 4 + 4, 1])


def test_a_late_part_does_not_end_the_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    lefts = forecasts(
        monkeypatch,
        {"ort int8": {NEAREST: 2.0}},
        [(time_s, candidate("ort int8", NEAREST, int(time_s > 0))) for time_s in (0.0, 2.0, 12.0)],
    )
    assert lefts == pytest.approx([None, 2.0, 0.1 * 10.0])


def test_there_is_no_estimate_early(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [(time_s, candidate("ort int8", NEAREST, int(time_s))) for time_s in (0.0, 2.0, 9.0, 11.0)]
    lefts = forecasts(monkeypatch, {"ort int8": {NEAREST: 5.0}}, events, early_s=10.0)
    assert [left is None for left in lefts] == [True, True, True, False]


def measured(snr_db: float, ratio: float, config: CandidateConfig) -> Measurement:
    return Measurement(config, Fidelity(Score("SNR", snr_db, "dB"), snr_db), ratio)


def test_what_was_measured_tells_what_is_expected() -> None:
    """Recipes are tried for each fast placement, unless one is saturated or none is faster than float."""
    quick, better = CandidateConfig("all", QUICK), CandidateConfig("all", DEFAULT)
    coarse = [measured(20.0, 0.5, quick), measured(25.0, 0.5, better)]
    assert candidates_to_come("ort", 4, coarse[:1]) == {
        "ort int8": {NEAREST: 3.0, OPTIMIZED: 2.5, TEST: 1.0},
        "ort auto": {NEAREST: 1.0, OPTIMIZED: 4.0, TEST: 1.0},
    }
    assert candidates_to_come("ort", 4, coarse)["ort int8"][OPTIMIZED] == 1.5
    assert candidates_to_come("ort", 4, coarse, is_enough=True)["ort int8"][OPTIMIZED] == 0.0
    slow, fine = [measured(50.0, 1.2, quick)], [measured(50.0, 0.5, quick)]
    assert candidates_to_come("ort", 4, slow)["ort auto"][OPTIMIZED] == 0.0
    assert candidates_to_come("ort", 4, fine)["ort auto"][OPTIMIZED] == 0.0
    assert candidates_to_come("ort", 4, fine)["ort int8"][OPTIMIZED] == 1.0
    assert REGIONS not in candidates_to_come("ort", 4, fine)["ort int8"]
