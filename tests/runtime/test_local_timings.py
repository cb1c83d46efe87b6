"""A session measures the variants of its bundle on this machine, in the background, once."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.bundle import Bundle
from edgekit.bundle.speed_order import EQUAL_RATIO
from edgekit.bundle.variant import Variant
from edgekit.runtime import Session, local_timings
from edgekit.runtime.latency.choices import times_ms
from tests.fixtures.bundles import X, small_bundle, variant
from tests.fixtures.fake_engines import Engines, throws

MEASURED = "the fastest here within 3 %, in ms of CPU time on one thread: "


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_timings, "DELAY_S", 0.0)
    monkeypatch.setattr(local_timings, "MEASURED_S", 0.1)


def run_until(session: Session, reached: Any) -> None:
    """Run until something is so."""
    feeds = {spec.name: spec.zeros() for spec in session.inputs}
    end = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < end
        session.run(feeds)


@pytest.mark.needs_ort
@pytest.mark.needs_tflite
@pytest.mark.needs_openvino
def test_the_variant_that_is_fastest_here_takes_over_and_the_next_session_begins_with_it(
    three_engines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Session(three_engines) as session:
        assert not session.reason.startswith(MEASURED)
        run_until(session, lambda: session.reason.startswith(MEASURED))
        with Bundle.open(three_engines) as bundle:
            times = {name: time_ms for name, (time_ms, _) in local_timings.recalled(bundle).items()}
        assert set(times) == {"ort-fp32", "openvino-fp32", "tflite-fp32"}
        best_ms = min(times.values())
        assert times[session.active.variant] <= EQUAL_RATIO * best_ms
        own_ms = {n: t for n, t in times.items() if n.startswith(session.active.variant.partition("-")[0])}
        assert times_ms(session) == own_ms  # a budget goes by the same times
    monkeypatch.setattr(subprocess, "Popen", None)
    with Session(three_engines) as again:
        assert times[again.active.variant] <= EQUAL_RATIO * best_ms
        assert again.reason.startswith(MEASURED)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    variants = [variant("lite", "tflite", p50_ms=9.0), variant("onnx", "ort", p50_ms=7.0)]
    return small_bundle(variants).save(tmp_path / "b.edgekit")


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Children that sleep in place of those that measure."""
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def sleeping(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        assert command[1:3] == ["-m", "edgekit.runtime.time_variants"]
        started.append(popen([command[0], "-c", "import time; time.sleep(60)"], **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", sleeping)
    return started


def test_one_process_measures_and_the_end_of_its_session_ends_it(
    engines: Engines, path: Path, children: list[subprocess.Popen[bytes]]
) -> None:
    with Session(path) as session:
        run_until(session, lambda: children)
        with Session(path) as second:
            run_until(second, lambda: second._chain._measurement is None)  # it leaves it to the first one
            assert second.reason == "the first of the bundle's order"
    assert len(children) == 1
    assert children[0].wait(10) < 0
    with Session(path) as third:
        run_until(third, lambda: len(children) == 2)


@pytest.mark.parametrize(
    "options", [{"measure": False}, {"engine": "ort"}, {"variant": "onnx"}, {"strict": True}]
)
def test_nothing_is_measured_for_a_session_that_does_not_choose(
    engines: Engines, path: Path, options: dict[str, Any]
) -> None:
    with Session(path, **options) as session:
        assert session._chain._measurement is None
        assert (session.reason == "it was requested") == bool({"engine", "variant"} & set(options))


def test_nothing_is_measured_where_it_cannot_be_kept(
    engines: Engines, path: Path, children: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "file" / "cache"))
    with Session(path) as session:
        run_until(session, lambda: session._chain._measurement is None)
        assert not children


def opening(name: str, target: str, p50_ms: float, load_ms: float) -> Variant:
    return variant(name, target)._replace(evidence={"timing": {"p50_ms": p50_ms, "load_ms": load_ms}})


def test_the_variant_that_opens_soonest_answers_until_the_best_one_is_open(engines: Engines) -> None:
    bundle = small_bundle([opening("slow", "tflite", 9.0, 50.0), opening("fast", "ort", 7.0, 1000.0)])
    with Session(bundle, measure=False) as session:
        assert (session.active.variant, session.fallbacks) == ("slow", ())
        assert session.reason == "fast is being prepared"
        run_until(session, lambda: session.active.variant == "fast")
        assert session.fallbacks == ()
        assert [(h.from_, h.to, h.reason) for h in session.history] == [
            ("slow", "fast", "its preparation finished")
        ]
        np.testing.assert_array_equal(session.run({"x": X})["y"], 2 * X)


def test_a_best_variant_that_fails_its_golden_vectors_never_takes_over(engines: Engines) -> None:
    engines["ort"].behaviour["fast"] = throws
    bundle = small_bundle([opening("slow", "tflite", 9.0, 50.0), opening("fast", "ort", 7.0, 1000.0)])
    with Session(bundle, measure=False) as session:
        run_until(session, lambda: session.preparing["fast"].startswith("failed"))
        assert session.active.variant == "slow"


def test_a_best_variant_that_opens_as_soon_is_not_waited_for(engines: Engines) -> None:
    bundle = small_bundle([opening("slow", "tflite", 9.0, 300.0), opening("fast", "ort", 7.0, 1000.0)])
    with Session(bundle) as session:
        assert session.active.variant == "fast"
    assert engines["tflite"].loaded == []
