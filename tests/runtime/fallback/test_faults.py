"""The table of faults: each way an engine fails is answered by the fallback, in time, and explained."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from edgekit.errors import EngineError
from edgekit.runtime import Session
from edgekit.runtime.loading.probe import ProbeResult
from edgekit.tensor_spec import Array
from tests.fixtures.bundles import X, small_bundle, variant
from tests.fixtures.fake_engines import (
    Behaviour,
    Engines,
    change,
    nothing,
    one_too_many,
    throws,
    wrong_dtype,
    wrong_name,
    wrong_shape,
)

DEADLINE_S = 1.0
AT_LOAD = ("missing", "refuses", "segfaults")
let_go = threading.Event()


def hangs(feeds: Mapping[str, Array]) -> dict[str, Array]:
    let_go.wait()
    return {}


def nan(feeds: Mapping[str, Array]) -> dict[str, Array]:
    return {"y": np.full((1, 6), np.nan, np.float32)}


def infinite(feeds: Mapping[str, Array]) -> dict[str, Array]:
    return {"y": np.full((1, 6), -np.inf, np.float32)}


WHILE_RUNNING: dict[str, Behaviour] = {
    "throws": throws,
    "hangs": hangs,
    "NaN": nan,
    "infinite": infinite,
    "wrong shape": wrong_shape,
    "wrong dtype": wrong_dtype,
    "wrong name": wrong_name,
    "no output": nothing,
    "too many outputs": one_too_many,
}


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engines]:
    engines = Engines("ort", "tflite")
    monkeypatch.setattr("edgekit.target.registry.engine", engines)
    let_go.clear()
    yield engines
    let_go.set()


def bundle_path(folder: Path) -> Path:
    variants = [variant("onnx", "ort", p50_ms=7.0), variant("lite", "tflite", p50_ms=10.0)]
    return small_bundle(variants).save(folder / "b.edgekit")


@pytest.mark.parametrize("fault", [*AT_LOAD, *WHILE_RUNNING])
def test_every_fault_is_answered_in_time_and_explained(
    engines: Engines, tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = ProbeResult("it crashed the probe process (SIGSEGV)", "Ort Runtime 1.0")
    sound = ProbeResult("", "Tflite Runtime 1.0")
    monkeypatch.setattr(
        "edgekit.runtime.loading.probe.probe",
        lambda bundle, variant, threads: killed if variant.name == "onnx" else sound,
    )
    engines["ort"].missing = fault == "missing"
    if fault == "refuses":
        engines["ort"].refused["onnx"] = EngineError("unknown operator")
    with Session(bundle_path(tmp_path), deadline_ms=1000 * DEADLINE_S, probe=fault == "segfaults") as session:
        if fault in WHILE_RUNNING:
            runner = session.runner._runner  # type: ignore[attr-defined]
            runner.behaviour = WHILE_RUNNING[fault]
        answers = session.run({"x": X})
        np.testing.assert_array_equal(answers["y"], 2 * X)
        assert session.active.variant == "lite"
        (hop,) = session.fallbacks
        assert (hop.from_, hop.to) == ("onnx", "lite")
        assert hop.reason
        assert hop.cost == "10 ms instead of 7 ms (+43 %)"


def test_states_are_told_and_logged(
    engines: Engines, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[tuple[str, str]] = []
    with (
        caplog.at_level(logging.INFO, "edgekit.runtime"),
        Session(bundle_path(tmp_path), warm=True, on_state=lambda *state: told.append(state)) as session,
    ):
        assert session.state == "ready"
        assert told == [(s, "onnx") for s in ("verifying", "loading", "warming", "ready")]
        told.clear()
        change(session, throws)
        session.run({"x": X})
        assert told == [(s, "lite") for s in ("verifying", "loading", "warming", "ready")]
        assert "warming onnx" in caplog.messages
    assert session.state == "closed"
    assert told[-1] == ("closed", "")


def test_an_apps_own_mistake_in_on_state_costs_no_answer(
    engines: Engines, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(state: str, variant: str) -> None:
        raise ValueError("no such widget")

    with Session(bundle_path(tmp_path), on_state=broken) as session:
        np.testing.assert_array_equal(session.run({"x": X})["y"], 2 * X)
    assert "on_state raised ValueError: no such widget" in caplog.messages


def test_a_variant_that_fails_when_it_is_warmed_is_passed(engines: Engines, tmp_path: Path) -> None:
    engines["ort"].behaviour["onnx"] = throws
    with Session(bundle_path(tmp_path), warm=True) as session:
        assert session.active.variant == "lite"
        assert engines["ort"].closed == 1


SLOW_TO_IMPORT = """
import sys
import numpy
slow = {'dataclasses', 'logging', 'numpy.typing', 'shutil', 'socket', 'subprocess', 'tempfile'}
slow -= set(sys.modules)  # numpy's own
"""
LOADED = """
ours = {m.rpartition('.')[2] for m in sys.modules if m.startswith('edgekit.')}
rooms = {'card', 'deadline', 'engine_build', 'image', 'metrics', 'probe', 'store', 'stream', 'watchdog'}
print(*sorted(rooms & ours), *sorted(slow & set(sys.modules)))
"""


def test_what_is_not_asked_for_costs_no_import() -> None:
    """Of a process's start a tenth is a session's; each of these modules takes 0.6 to 9 ms."""
    script = SLOW_TO_IMPORT + "import edgekit.runtime" + LOADED
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.needs_tflite
@pytest.mark.needs_ort
@pytest.mark.needs_openvino
@pytest.mark.parametrize("engine", ["ort", "tflite"])
def test_an_open_session_has_imported_no_more(three_engines: Path, engine: str) -> None:
    """But for what the engine itself imports."""
    run = (
        "from edgekit.runtime import Session\n"
        f"session = Session({str(three_engines)!r}, engine={engine!r}, strict=True, threads=1)\n"
        "session.run({'image': numpy.ones((1, 3, 16, 16), numpy.float32)})\n"
    )
    engines = {"ort": "import onnxruntime", "tflite": "from ai_edge_litert import interpreter"}
    script = SLOW_TO_IMPORT + engines[engine] + "\nslow -= set(sys.modules)\n" + run + LOADED
    for _ in range(2):  # the first unpacks, which needs shutil
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
