from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgekit
from edgekit.bundle import Bundle, Variant
from edgekit.compiler.bench.bench import bench, bench_engines, render
from edgekit.errors import BundleError, EdgeKitError, NoVariantError, UsageError
from edgekit.runtime import Session, local_timings
from edgekit.system.energy import EnergyReading
from tests.fixtures import cascades, models
from tests.fixtures.bundles import small_bundle, small_manifest, variant
from tests.fixtures.fake_engines import Engines

TWO = [variant("a-fp32", "a"), variant("b-fp32", "b")]


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Engines:
    found = Engines("a", "b")
    monkeypatch.setattr("edgekit.target.registry.engine", found)
    return found


def test_every_engine_is_timed(engines: Engines) -> None:
    results = bench_engines(small_bundle(TWO), engine=None, threads=1, seconds=0.001)
    assert [(r["variant"], r["engine"], r["threads"]) for r in results] == [
        ("a-fp32", "A Runtime 1.0", 1),
        ("b-fp32", "B Runtime 1.0", 1),
    ]
    assert all(r["runs"] >= 3 and 0 < r["p50_ms"] <= r["p95_ms"] <= r["p99_ms"] for r in results)
    times = {"load_ms": 1.0, "first_ms": 10.0, "p50_ms": 20.0, "p95_ms": 30.0, "p99_ms": 40.0}
    times["cpu_ms"] = 35.0
    assert all(r["page_faults"] < 10 for r in results)
    used = {
        "page_faults": 7,
        "rss_mb": 50.0,
        "energy_j": None,
        "no_energy": "why",
        "overhead_us": 21.0,
        "ratio": 1.002,
        "session_ms": {"b-fp32": 25.0, "a-fp32": 24.0},
    }
    told = render([{**r, **times, **used} for r in results])
    assert told.splitlines() == [
        "  variant  load  first  p50    p95    p99    CPU    faults  overhead",
        "  a-fp32   1 ms  10 ms  20 ms  30 ms  40 ms  35 ms  7       +0.021 ms (1.002x)",
        "  b-fp32   1 ms  10 ms  20 ms  30 ms  40 ms  35 ms  7       +0.021 ms (1.002x)",
        "",
        "  ran       a-fp32  on A Runtime 1.0, 1 thread",
        "  ran       b-fp32  on B Runtime 1.0, 1 thread",
        "  kept      for sessions here, in ms of CPU time on one thread: a-fp32 24, b-fp32 25",
        "  memory    50 MB at most, of this process",
        "  energy    not measured: why",
    ]


@pytest.mark.needs_ort
@pytest.mark.needs_tflite
def test_the_times_for_sessions_are_measured_in_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here, all variants would count as memory, and a cold start would find its engine loaded."""
    bundle = edgekit.build(models.write(tmp_path, models.SMALL_CNN), targets=["ort", "tflite"])
    path = bundle.save(tmp_path / "two.edgekit")
    opened: list[str | None] = []
    opens = Session.__init__

    def noted(session: Session, *given: Any, **options: Any) -> None:
        opened.append(options.get("variant"))
        opens(session, *given, **options)

    monkeypatch.setattr(Session, "__init__", noted)
    with Bundle.open(path) as saved:
        results = bench_engines(saved, threads=1, seconds=0.01)
        assert [set(row["session_ms"]) for row in results] == [{"ort-fp32", "tflite-fp32"}] * 2
        assert set(local_timings.recalled(saved)) == {"ort-fp32", "tflite-fp32"}
    assert opened == [None, None]  # one for each engine, and none to time a variant


def test_runs_start_at_the_pace_of_a_camera(engines: Engines) -> None:
    paced = bench(small_bundle(TWO), threads=1, seconds=0.05, fps=200)
    assert 3 <= paced["runs"] <= 0.05 * 200 / 2 + 1  # in turns with as many of the bare engine
    assert paced["cpu_ms"] < 1000 / 200
    assert "  ran       a-fp32  on A Runtime 1.0, 1 thread, at 200 fps" in render([paced]).splitlines()


@pytest.mark.parametrize("fps", [0.0, -1.0, math.nan, math.inf, 1001.0])
def test_a_pace_that_is_none(engines: Engines, fps: float) -> None:
    with pytest.raises(UsageError) as error:
        bench(small_bundle(TWO), fps=fps)
    assert str(error.value) == f"fps must be greater than 0 and at most 1000, not {fps:g}"


def test_a_bundle_of_rejected_variants_says_so(engines: Engines) -> None:
    rejected = Variant("a-int8", "a", "a", "int8", {}, {}, "rejected: SNR 3 dB", {})
    with pytest.raises(NoVariantError, match=r"^new bundle has nothing to run: .*\n  a-int8: SNR 3 dB\n"):
        bench_engines(small_bundle([rejected]), engine=None, threads=1, seconds=0.001)


def test_an_engine_that_is_missing_is_left_out_and_none_is_an_error(engines: Engines) -> None:
    engines["a"].missing = True
    results = bench_engines(small_bundle(TWO), engine=None, threads=1, seconds=0.001)
    assert [r["variant"] for r in results] == ["b-fp32"]
    engines["b"].missing = True
    with pytest.raises(EdgeKitError, match=r"^none of the bundle's engines is installed here") as error:
        bench_engines(small_bundle(TWO), engine=None, threads=1, seconds=0.001)
    assert error.value.exit_code == 3


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_a_time_that_is_none(engines: Engines, seconds: float) -> None:
    with pytest.raises(UsageError) as error:
        bench(small_bundle(TWO), seconds=seconds)
    assert str(error.value) == f"seconds must be greater than 0, not {seconds:g}"


def test_without_golden_vectors_there_is_nothing_to_time(engines: Engines) -> None:
    bundle = Bundle.create({**small_manifest(), "golden": []}, {"variants/ort-fp32/model.bin": b"x"})
    with pytest.raises(BundleError) as error:
        bench(bundle)
    assert str(error.value) == "new bundle has no golden vectors to run; build it again"


def test_energy_and_cost_are_of_a_run(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([0, 6_000_000])
    monkeypatch.setattr(
        "edgekit.compiler.bench.bench.read_energy", lambda: EnergyReading({"p": (next(readings), 10**9)}, "")
    )
    (found,) = bench_engines(small_bundle(TWO), engine="a", threads=1, seconds=0.001, price_per_hour=3.6)
    assert found["energy_j"] == pytest.approx(6 / (2 * found["runs"]), rel=1e-3)
    rounded_ms = 5.1e-5  # a run of microseconds has few digits
    assert found["cost_per_1000"] == pytest.approx(3.6 * found["p50_ms"] / 3600, abs=3.6 * rounded_ms / 3600)
    assert found["cold_ms"] == pytest.approx(found["load_ms"] + found["first_ms"], abs=0.01)
    told = render([{**found, "energy_j": 0.0125, "cost_per_1000": 0.05}]).splitlines()
    assert "  energy    a-fp32: 12.5 mJ a run, of the whole processor" in told
    assert "  cost      a-fp32: 0.05 for 1000 runs, one after the other" in told
    with pytest.raises(UsageError, match=r"^the price per hour must be greater than 0, not -1$"):
        bench(small_bundle(TWO), price_per_hour=-1)


@pytest.mark.needs_ort
def test_every_stage_of_a_cascade_is_timed(tmp_path: Path) -> None:
    """The golden picture has four bright quarters, so a frame runs the second stage four times."""
    quarters = np.full((1, 3, 8, 8), 0.9, np.float32)
    path = cascades.stages(tmp_path, samples=[{"x": quarters}])
    edgekit.build_cascade(path).save(tmp_path / "cascade.edgekit")
    with Bundle.open(tmp_path / "cascade.edgekit") as bundle:
        first, later = bench_engines(bundle, engine=None, threads=1, seconds=0.001)
    assert (first["variant"], later["variant"]) == ("ort-fp32", "colour: ort-fp32")
    assert (later["stage"], later["stage_of"]) == ("colour", "ort-fp32")
    assert first["frame"]["crops"] == {"colour": 4}
    assert first["frame"]["runs"] >= 3
    text = render([{**first, "p50_ms": 10.0, "frame": {**first["frame"], "p50_ms": 30.0, "p95_ms": 31.0}},
                   {**later, "p50_ms": 5.0}])  # fmt: skip
    assert (
        "  cascade   ort-fp32: 10 ms for the first stage of a frame, and 5 ms for each crop of colour" in text
    )
    assert (
        "  frame     ort-fp32: p50 30 ms, p95 31 ms for the bundle's own picture with 4 crops of colour"
        in text
    )
