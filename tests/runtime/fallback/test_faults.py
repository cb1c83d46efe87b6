"""The table of faults: each way an engine fails is answered by the fallback, in time, and explained."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from edgekit.runtime import Session
from tests.fixtures.bundles import X, small_bundle, variant
from tests.fixtures.child_processes import run_python
from tests.fixtures.fake_engines import (
    Engines,
    change,
    throws,
)


def bundle_path(folder: Path) -> Path:
    variants = [variant("onnx", "ort", p50_ms=7.0), variant("lite", "tflite", p50_ms=10.0)]
    return small_bundle(variants).save(folder / "b.edgekit")


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
    done = run_python(script, check=True)
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
        done = run_python(script, check=True)
    assert done.stdout.split() == []
