from __future__ import annotations

import numpy as np
import pytest

from edgekit import timing
from edgekit.target import Artifact, TensorSpec
from edgekit.timing import Timed, time_in_turns, turns
from tests.fake_engines import Engines, FakeRunner, doubled

X = TensorSpec("x", "float32", (1, 6))
Y = TensorSpec("y", "float32", (1, 6))
SAMPLE = {"x": np.zeros((1, 6), np.float32)}
A, B = (Timed("ort", Artifact({"model.bin": name})) for name in (b"a", b"b"))


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Engines:
    found = Engines("ort")
    monkeypatch.setattr("edgekit.target.engine", found)
    return found


def test_runners_take_turns(engines: Engines) -> None:
    order: list[str] = []
    runners = [
        FakeRunner(engines["ort"], lambda feeds, name=name: order.append(name) or doubled(feeds))  # type: ignore[misc, func-returns-value]
        for name in "ab"
    ]
    times = turns(runners, SAMPLE)
    assert [len(own) for own in times] == [timing.TIMED_RUNS] * 2
    assert order == [*"aabb", *("ab" * timing.TIMED_RUNS)]


def test_slow_ones_stop_after_three_runs(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "TIMED_SECONDS", -1.0)
    assert [len(own) for own in turns([FakeRunner(engines["ort"], doubled)], SAMPLE)] == [3]


def test_timings_are_recalled_when_all_are_known(engines: Engines) -> None:
    first = time_in_turns([A, B], [X], [Y], SAMPLE)
    assert engines["ort"].loaded == ["a", "b"]
    assert engines["ort"].closed == 2
    assert time_in_turns([B, A], [X], [Y], SAMPLE) == first[::-1]
    assert engines["ort"].loaded == ["a", "b"]
    assert [t["runs"] for t in first] == [timing.TIMED_RUNS] * 2
    assert all(0 < t["min_ms"] <= t["p50_ms"] for t in first)


def test_another_engine_version_is_another_timing(engines: Engines) -> None:
    time_in_turns([A], [X], [Y], SAMPLE)
    engines["ort"].version = "2.0"
    time_in_turns([A], [X], [Y], SAMPLE)
    assert engines["ort"].loaded == ["a", "a"]
