from __future__ import annotations

from dataclasses import replace
from time import struct_time

import numpy as np
import pytest

from edgekit.bundle.evidence import Timing
from edgekit.compiler.evaluate import timing
from edgekit.compiler.evaluate.timing import Timed, confirmed_ratio, time_in_turns, turns
from edgekit.compiler.evaluate.verify import ReferenceOutputs
from edgekit.errors import EngineNotReady
from edgekit.system import json_records
from edgekit.system import timings as stored_timings
from edgekit.target import Artifact
from edgekit.tensor_spec import Json, TensorSpec
from tests.fixtures.fake_engines import Engines, FakeRunner, doubled

X = TensorSpec("x", "float32", (1, 6))
Y = TensorSpec("y", "float32", (1, 6))
SAMPLE = {"x": np.zeros((1, 6), np.float32)}
REFERENCE = ReferenceOutputs([X], [Y], [SAMPLE])


@pytest.fixture
def engines() -> Engines:
    return Engines("ort")


@pytest.fixture
def pair(engines: Engines) -> tuple[Timed, Timed]:
    """Two variants of one engine."""
    one, other = (Timed(engines["ort"], Artifact({"model.bin": name.encode()}), name) for name in "ab")
    return one, other


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


def test_timings_are_recalled_when_all_are_known(engines: Engines, pair: tuple[Timed, Timed]) -> None:
    first = time_in_turns([*pair], REFERENCE)
    assert engines["ort"].loaded == ["a", "b"]
    assert engines["ort"].closed == 2
    assert time_in_turns([*pair[::-1]], REFERENCE) == first[::-1]
    assert engines["ort"].loaded == ["a", "b"]
    assert [t["runs"] for t in first] == [timing.TIMED_RUNS] * 2
    assert all(0 < t["min_ms"] <= t["p50_ms"] for t in first)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("min_ms", -1.0),
        ("min_ms", "13"),
        ("load_ms", None),
        ("runs", 0),
        ("runs", True),
        ("threads", 1.5),
        ("cpu", ""),
        ("isa", ""),
        ("machine", 7),
        ("measured", None),
    ],
)
def test_a_damaged_timing_is_ignored_whole(
    engines: Engines, pair: tuple[Timed, Timed], name: str, value: Json
) -> None:
    (first,) = time_in_turns([pair[0]], REFERENCE)
    damaged: Json = {pair[0].key: {**first, name: value}}
    folder = stored_timings.timings_folder()
    assert json_records.record(folder, timing.together_key(pair[:1]), damaged, 10)
    (again,) = time_in_turns([pair[0]], REFERENCE)
    assert engines["ort"].loaded == ["a", "a"]
    assert again.get(name) != value


def test_it_is_said_when_it_was_measured(
    engines: Engines, pair: tuple[Timed, Timed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.gmtime", lambda: struct_time((2026, 11, 22, 10, 15, 3, 6, 326, 0)))
    (first,) = time_in_turns([pair[0]], REFERENCE)
    monkeypatch.setattr("time.gmtime", lambda: struct_time((2026, 11, 23, 9, 0, 0, 0, 327, 0)))
    (recalled,) = time_in_turns([pair[0]], REFERENCE)
    assert first["measured"] == recalled["measured"] == "2026-11-22 10:15"


def test_another_engine_version_is_another_timing(engines: Engines, pair: tuple[Timed, Timed]) -> None:
    time_in_turns([pair[0]], REFERENCE)
    engines["ort"].version = "2.0"
    time_in_turns([pair[0]], REFERENCE)
    assert engines["ort"].loaded == ["a", "a"]


def test_what_seems_slower_may_show_that_it_is_not_and_it_is_remembered(
    engines: Engines, pair: tuple[Timed, Timed], monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = iter([[[0.012], [0.010]], [[0.012], [0.010]], [[0.009], [0.010]]])
    monkeypatch.setattr(timing, "turns", lambda runners, sample, clock=None: next(rounds))
    found: Timing = {
        "p50_ms": 14.0,
        "min_ms": 13.0,
        "load_ms": 1.0,
        "runs": 20,
        "threads": 1,
        "cpu": "A CPU",
        "isa": "avx2",
        "machine": "x86_64",
        "measured": "2026-11-22 10:15",
    }
    assert confirmed_ratio(*pair, found, 11.0, 1.0, REFERENCE) == 0.9
    assert engines["ort"].loaded == ["a", "b"]
    assert found["ratio"] == 0.9
    again: Timing = {**found}
    del again["ratio"]
    assert confirmed_ratio(*pair, again, 11.0, 1.0, REFERENCE) == 0.9  # no fourth round was needed
    assert again == found


def test_a_build_with_other_variants_leaves_timings_alone(
    engines: Engines, pair: tuple[Timed, Timed]
) -> None:
    alone = time_in_turns([pair[0]], REFERENCE)
    time_in_turns([*pair], REFERENCE)
    assert engines["ort"].loaded == ["a", "a", "b"]
    assert time_in_turns([pair[0]], REFERENCE) == alone
    assert engines["ort"].loaded == ["a", "a", "b"]


def test_of_two_processes_that_time_the_same_the_first_is_remembered(
    engines: Engines, pair: tuple[Timed, Timed], monkeypatch: pytest.MonkeyPatch
) -> None:
    recall = timing._recalled
    (first,) = time_in_turns([pair[0]], REFERENCE)
    unknown = iter([True, False])
    monkeypatch.setattr(timing, "_recalled", lambda variants: None if next(unknown) else recall(variants))
    assert time_in_turns([pair[0]], REFERENCE) == [first]
    assert engines["ort"].loaded == ["a", "a"]


@pytest.mark.parametrize("own", [0.007, 0.012])
def test_the_process_s_own_time_decides_what_seems_slower(
    engines: Engines, pair: tuple[Timed, Timed], own: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks: list[object] = []

    def measured(runners: object, sample: object, clock: object = None) -> list[list[float]]:
        clocks.append(clock)
        return [[own], [0.010]] if clock is timing.OWN_TIME else [[0.013], [0.010]]

    monkeypatch.setattr(timing, "turns", measured)
    ratio = confirmed_ratio(*pair, {"p50_ms": 14.0, "min_ms": 13.0}, 11.0, 1.0, REFERENCE)
    assert ratio == pytest.approx(100 * own)
    elapsed = 0 if own < 0.011 else timing.CONFIRMING_ROUNDS
    assert clocks == [timing.OWN_TIME] + [None] * elapsed


def test_busy_is_more_load_than_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    for load, expected in ((1.5, False), (2.5, True)):
        monkeypatch.setattr("os.getloadavg", lambda load=load: (load, 0.0, 0.0), raising=False)
        assert timing.busy() is expected


def test_an_engine_that_must_be_built_first_is_waited_for(
    engines: Engines, pair: tuple[Timed, Timed]
) -> None:
    refused = engines["ort"].refused
    waited: list[str] = []

    class Build:
        def wait(self) -> None:
            waited.append("a")
            del refused["a"]

    refused["a"] = EngineNotReady("its engine is being built on this device", Build())  # type: ignore[arg-type]
    assert len(time_in_turns([*pair], REFERENCE)) == 2
    assert waited == ["a"]


def test_the_same_files_with_other_options_are_another_timing(
    engines: Engines, pair: tuple[Timed, Timed]
) -> None:
    narrow = replace(pair[0], artifact=pair[0].artifact._replace(options={"arithmetic": "bf16"}))
    assert narrow.key != pair[0].key
    assert narrow.digest != pair[0].digest
