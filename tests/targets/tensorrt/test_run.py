"""run.py on stand-ins for TensorRT and CUDA: real processes, a real cache, ONNX Runtime for the numbers."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from edgekit_tensorrt import run
from edgekit_tensorrt.device import presence

from edgekit.compiler.pipeline.build_bundle import build_bundle
from edgekit.compiler.pipeline.build_request import BuildRequest
from edgekit.errors import EngineError, EngineNotReady, MissingDependency
from edgekit.runtime import Session, local_timings
from edgekit.runtime.device_builds.build import NO_ROOM, EngineLimits
from edgekit.runtime.device_builds.engine_store import ENGINE, EngineStore
from tests.conftest import NEEDS
from tests.fixtures.child_processes import children
from tests.fixtures.models import SMALL_CNN, write
from tests.targets.engine_trial import EDGES, feeds, same_as_reference, with_shapes
from tests.targets.tensorrt.jetson import NEEDS_STAND_INS, built, opened, small

pytestmark = NEEDS_STAND_INS


def test_without_tensorrt_there_is_one_clear_line_and_the_fallback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", None)  # as if it were not installed
    how = "JetPack 6.1 or newer has it (python -m venv --system-site-packages lets an environment see it)"
    with pytest.raises(MissingDependency) as found:
        run.engine_version()
    assert str(found.value) == f"tensorrt is not installed, and running a TensorRT engine needs it: {how}"
    with Session(
        build_bundle(BuildRequest(write(tmp_path, SMALL_CNN), targets=["tensorrt", "ort"])), engine="tensorrt"
    ) as session:
        given, expected = session.bundle.golden[0]
        np.testing.assert_allclose(session.run(given)["scores"], expected["scores"], rtol=1e-5)
        assert [(hop.to, hop.reason) for hop in session.fallbacks] == [
            ("ort-fp32", f"tensorrt is not installed ({how})")
        ]


def test_an_old_tensorrt_is_told(jetson: pytest.MonkeyPatch) -> None:
    jetson.setenv("STAND_IN_VERSION", "8.6.2.3")
    with pytest.raises(
        MissingDependency, match=r"^tensorrt 10\.3 or newer is not installed, .*\(here is 8\.6"
    ):
        run.engine_version()


def test_importing_the_package_imports_no_tensorrt() -> None:
    script = (
        "import sys, edgekit_tensorrt.compile, edgekit_tensorrt.run, edgekit_tensorrt.device.build_engine\n"
        "print(*[m for m in sys.modules if m.startswith('tensorrt')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_the_doctor_hears_what_is_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same as decides which tests are skipped."""
    assert run.ENGINE.tools is not None
    needs = {tool: found for tool, found, _ in run.ENGINE.tools()}
    assert (needs["NVIDIA's compiler"] is not None) == NEEDS["needs_tensorrt_compiler"][0]()
    assert (needs["NVIDIA GPU"] is not None and presence.tensorrt_installed()) == NEEDS["needs_tensorrt_gpu"][
        0
    ]()
    device = tmp_path / "nvidia0"
    monkeypatch.setattr(presence, "GPU_DEVICES", ("/dev/no-such-gpu", str(device)))
    assert presence.gpu_device() is None
    device.touch()
    assert presence.gpu_device() == str(device)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_the_first_call_builds_and_the_next_one_runs(machine: str, tmp_path: Path, precision: str) -> None:
    model = small()
    assert built(model, tmp_path / "a", precision) == ""
    runner = opened(model, tmp_path / "b", precision)
    assert runner.precision == precision
    if machine == "stand-ins":
        assert (run.engine_version(), runner.device) == ("TensorRT 10.3.0", "GPU 0: Stand-in")
    same_as_reference(model, runner, feeds(model), rtol=1e-4 if precision == "fp32" else 1e-2)
    facts = runner.facts()
    assert (facts["cuda_graph"], facts["cuda_graph_problem"]) == (True, "")
    runner.close()
    (engine,) = [p for p in EngineStore().root.iterdir() if p.is_dir()]
    meta = EngineStore().meta(engine.name)
    assert set(meta) == {"cuda_graph", "cuda_graph_problem", "golden_db", "min_ms", "seconds", "sha256"}


def test_odd_inputs_and_outputs(machine: str, tmp_path: Path) -> None:
    model = with_shapes(EDGES)
    assert built(model, tmp_path / "a") == ""
    runner = opened(model, tmp_path / "b")
    same_as_reference(model, runner, feeds(model))
    runner.close()


def test_answers_are_the_callers(machine: str, tmp_path: Path) -> None:
    model = small()
    assert built(model, tmp_path / "a") == ""
    runner = opened(model, tmp_path / "b")
    first = runner.run(feeds(model, 0))
    kept = {name: array.copy() for name, array in first.items()}
    runner.run(feeds(model, 1))
    assert all(np.array_equal(first[name], kept[name]) for name in kept)
    runner.close()


FAULTS = {
    "crashes while it builds": "the builder was killed by signal 11",
    "crashes while it loads": "the builder was killed by signal 11",
    "refuses": "TensorRT 10.3.0 rejects the file: conv (Conv): no such form",
    "builds nothing": "TensorRT 10.3.0 cannot build an engine from the file; its log has the reason",
    "loads nothing": "TensorRT 10.3.0 cannot load the engine; its log has the reason",
    "fails to run": "TensorRT 10.3.0 failed to run the engine; its log has the reason",
    "computes wrong numbers": "output scores: SNR -6.0 dB; fp32 needs 50 dB",
}


@pytest.mark.parametrize("how", FAULTS)
def test_a_tensorrt_that_misbehaves_is_switched_off(
    jetson: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    jetson.setenv("STAND_IN_TENSORRT", how)
    model = small()
    assert built(model, tmp_path / "a") == FAULTS[how]
    assert built(model, tmp_path / "b") == FAULTS[how]
    with pytest.raises(EngineError) as found:
        opened(model, tmp_path / "c")
    assert str(found.value) == f"disabled after 2 failures, the last: {FAULTS[how]}"


def test_an_engine_that_stops_working_is_set_aside(jetson: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = small()
    assert built(model, tmp_path / "a") == ""
    jetson.setenv("STAND_IN_TENSORRT", "computes wrong numbers")
    with pytest.raises(EngineError) as found:
        opened(model, tmp_path / "b")
    assert str(found.value) == (
        "TensorRT 10.3.0 can't use the engine it built: output scores: SNR -6.0 dB; fp32 needs 50 dB"
    )
    jetson.delenv("STAND_IN_TENSORRT")
    assert built(model, tmp_path / "c") == ""
    opened(model, tmp_path / "d").close()


def test_an_engine_that_twice_stops_working_is_switched_off(
    jetson: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Built well and loaded badly, it would be built again at every start."""
    model = small()
    for number in range(2):
        jetson.delenv("STAND_IN_TENSORRT", raising=False)
        assert built(model, tmp_path / f"a{number}") == ""
        jetson.setenv("STAND_IN_TENSORRT", "loads nothing")
        with pytest.raises(EngineError, match=r"^TensorRT 10\.3\.0 can't use the engine it built: "):
            opened(model, tmp_path / f"b{number}")
    with pytest.raises(EngineError, match=r"^disabled after 2 failures, the last: TensorRT 10\.3\.0 cannot "):
        opened(model, tmp_path / "c")


def test_a_damaged_engine_is_built_again(machine: str, tmp_path: Path) -> None:
    model = small()
    assert built(model, tmp_path / "a") == ""
    (engine,) = EngineStore().root.glob(f"*/{ENGINE}")
    engine.write_bytes(engine.read_bytes()[:100])
    assert built(model, tmp_path / "b") == ""
    opened(model, tmp_path / "c").close()


def test_a_full_disk_is_not_the_engines_fault(jetson: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert built(small(), tmp_path / "a") == ""
    (request,) = EngineStore().root.glob("*.request")
    for name in (ENGINE, "result.json"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).symlink_to("/dev/full")  # opens, and takes nothing
        command = [sys.executable, "-m", "edgekit_tensorrt.device.build_engine", str(request), str(folder)]
        assert subprocess.run(command, check=False).returncode == NO_ROOM
    command[-1] = str(tmp_path / "absent")
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode not in (0, NO_ROOM)
    assert "FileNotFoundError" in done.stderr


def test_the_builder_stands_back(jetson: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The lowest priority, and the first to go when memory runs out."""
    jetson.setenv("STAND_IN_TENSORRT", "builds slowly")
    with pytest.raises(EngineNotReady) as found:
        opened(small(), tmp_path)
    build = found.value.build
    seen = set()
    while not build.done:
        for pid in children():
            with contextlib.suppress(OSError):
                score = Path(f"/proc/{pid}/oom_score_adj").read_text("ascii").strip()
                seen.add((os.getpriority(os.PRIO_PROCESS, pid), score))
        time.sleep(0.05)
    assert build.reason == ""
    assert (19, "1000") in seen


def test_the_page_says_what_a_build_may_take() -> None:
    limits = EngineLimits()
    page = " ".join((Path(__file__).parents[3] / "docs" / "tensorrt.md").read_text("utf-8").split())
    assert (
        f"needs {limits.needs_memory_mb} MB of free memory and {limits.needs_disk_mb} MB of free disk. It is"
        f" stopped after {limits.seconds / 60:g} minutes, at {limits.memory_mb >> 10} GB, or if less than"
        f" {limits.floor_mb} MB of memory are left for other processes"
    ) in page


def test_another_tensorrt_is_another_engine(jetson: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = small()
    assert built(model, tmp_path / "a") == ""
    sys.modules.pop("tensorrt")
    jetson.setenv("STAND_IN_VERSION", "10.13.3.9")
    assert built(model, tmp_path / "b") == ""
    assert len(list(EngineStore().root.glob(f"*/{ENGINE}"))) == 2


def test_two_precisions_are_two_engines(machine: str, tmp_path: Path) -> None:
    model = small()
    assert built(model, tmp_path / "a") == ""
    assert built(model, tmp_path / "b", "fp16") == ""
    runner = opened(model, tmp_path / "c", "fp16")
    same_as_reference(model, runner, feeds(model), rtol=1e-2)
    runner.close()


def test_a_session_serves_at_once_and_takes_the_engine_when_it_stands(
    jetson: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = write(tmp_path, SMALL_CNN)
    bundle = build_bundle(BuildRequest(path, targets=["ort", "tensorrt"]))
    jetson.setattr(local_timings, "compare", lambda runners, feeds: (1.0, 2.0))
    given = feeds(small())
    with Session(bundle) as session:
        first, *_ = session.run(given).values()
        assert session.active.engine.startswith("ONNX Runtime")
        assert session.preparing.keys() == {"tensorrt-fp32"}
        end = time.monotonic() + 60
        while session.active.variant != "tensorrt-fp32":
            assert time.monotonic() < end
            again, *_ = session.run(given).values()
            np.testing.assert_allclose(again, first, rtol=1e-5)
        assert session.active.device == "GPU 0: Stand-in"


def test_a_session_whose_builder_is_killed_keeps_answering(
    jetson: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """8 seeded kills while the app asks; the engine is never used before it is whole."""
    path = write(tmp_path, SMALL_CNN)
    bundle = build_bundle(BuildRequest(path, targets=["ort", "tensorrt"]))
    jetson.setattr(local_timings, "compare", lambda runners, feeds: (1.0, 2.0))
    given = feeds(small())
    draw = random.Random(8)
    ends = set()
    for number in range(8):
        jetson.setenv("EDGEKIT_CACHE", str(tmp_path / str(number)))
        with Session(bundle) as session:
            first, *_ = session.run(given).values()
            kill_at = time.monotonic() + draw.uniform(0, 1.2)
            while not session.preparing["tensorrt-fp32"].startswith(("ready", "failed")):
                if time.monotonic() > kill_at:
                    for pid in children():
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                again, *_ = session.run(given).values()
                np.testing.assert_allclose(again, first, rtol=1e-5)
            ends.add(session.active.variant)
    assert "ort-fp32" in ends
