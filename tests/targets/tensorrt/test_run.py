"""run.py on stand-ins for TensorRT and CUDA: real processes, a real cache, ONNX Runtime for the numbers."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from edgekit_tensorrt import run
from edgekit_tensorrt.compile import compile_model
from edgekit_tensorrt.device import cuda, presence
from edgekit_tensorrt.device.engine import TensorRtRunner

from edgekit.errors import EngineError, EngineNotReady, MissingDependency
from edgekit.passes import run_passes
from edgekit.pipeline import build
from edgekit.runtime import Session, times_here
from edgekit.runtime.engines.engine_build import NO_ROOM
from edgekit.runtime.engines.engine_store import ENGINE, EngineStore
from tests.children import children
from tests.conftest import NEEDS
from tests.models import SMALL_CNN, write
from tests.targets.engine_trial import EDGES, feeds, profile, put_down, same_as_reference, specs, with_shapes

STAND_INS = Path(__file__).with_name("stand_ins")
COMPILER = shutil.which("cc") or shutil.which("gcc")
pytestmark = [
    pytest.mark.needs_ort,
    pytest.mark.skipif(COMPILER is None, reason="no C compiler for the stand-in of libcudart"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="TensorRT's devices run Linux"),
]


@pytest.fixture(scope="session")
def cudart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("cuda") / "libcudart.so.13"
    assert COMPILER is not None
    command = [COMPILER, "-shared", "-fPIC", "-w", "-o", str(library), str(STAND_INS / "cudart.c")]
    subprocess.run(command, check=True)
    return library


@pytest.fixture
def jetson(cudart: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A machine that has TensorRT and CUDA, for this process and its children."""
    monkeypatch.setattr(cuda, "LIBRARIES", (str(cudart),))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(cudart.parent))
    roots = [STAND_INS, *(Path(run.__file__).parents[1], Path(__file__).parents[3])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, roots)))
    monkeypatch.syspath_prepend(str(STAND_INS))
    yield monkeypatch
    sys.modules.pop("tensorrt", None)


def opened(model: ir.Model, folder: Path, precision: str = "fp32") -> TensorRtRunner:
    canonical = model.clone()
    run_passes(canonical)
    artifact = compile_model(canonical, profile("tensorrt"), precision)
    inputs, outputs = specs(list(model.graph.inputs)), specs(list(model.graph.outputs))
    return run.open_runner(put_down(artifact, folder), inputs, outputs, artifact.options, None)


def built(model: ir.Model, folder: Path, precision: str = "fp32") -> str:
    """Why the build failed; empty where the engine stands."""
    with pytest.raises(EngineNotReady) as found:
        opened(model, folder, precision)
    assert found.value.build.wait(60)
    return found.value.build.why


def alive() -> int:
    """What was made by the stand-in of CUDA and not given back."""
    count: int = ctypes.CDLL(cuda.LIBRARIES[0]).stand_in_alive()
    return count


def small() -> ir.Model:
    return with_shapes(SMALL_CNN)


def test_without_tensorrt_there_is_one_clear_line_and_the_fallback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", None)  # as if it were not installed
    how = "JetPack 6.1 or newer has it (python -m venv --system-site-packages lets an environment see it)"
    with pytest.raises(MissingDependency) as found:
        run.engine_version()
    assert str(found.value) == f"tensorrt is not installed, and running a TensorRT engine needs it: {how}"
    with Session(
        build(write(tmp_path, SMALL_CNN), targets=["tensorrt", "ort"]), engine="tensorrt"
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
    needs = {tool: found for tool, found, _ in run.tools()}
    assert (needs["NVIDIA's compiler"] is not None) == NEEDS["needs_tensorrt_compiler"][0]()
    assert (needs["NVIDIA GPU"] is not None and presence.tensorrt_installed()) == NEEDS["needs_tensorrt_gpu"][
        0
    ]()
    device = tmp_path / "nvidia0"
    monkeypatch.setattr(presence, "GPU_DEVICES", ("/dev/no-such-gpu", str(device)))
    assert presence.gpu_device() is None
    device.touch()
    assert presence.gpu_device() == str(device)


def test_the_first_call_builds_and_the_next_one_runs(jetson: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = small()
    assert run.engine_version() == "TensorRT 10.3.0"
    assert built(model, tmp_path / "a") == ""
    runner = opened(model, tmp_path / "b")
    assert (runner.device, runner.precision) == ("GPU 0: Stand-in", "fp32")
    same_as_reference(model, runner, feeds(model))
    facts = runner.facts()
    assert (facts["cuda_graph"], facts["cuda_graph_problem"]) == (True, "")
    runner.close()
    (engine,) = [p for p in EngineStore().root.iterdir() if p.is_dir()]
    meta = EngineStore().meta(engine.name)
    assert set(meta) == {"cuda_graph", "cuda_graph_problem", "golden_db", "min_ms", "seconds", "sha256"}


NO_GRAPH = {
    "records nothing": "cudaStreamBeginCapture: operation not supported (801)",
    "spoils the recording": "cudaStreamEndCapture: capture invalidated (901)",
    "makes no graph": "cudaGraphInstantiateWithFlags: operation not supported (801)",
    "can't be recorded": "TensorRT 10.3.0 failed to run the engine; its log says why",
}


@pytest.mark.parametrize("how", NO_GRAPH)
def test_without_a_graph_it_goes_on(jetson: pytest.MonkeyPatch, tmp_path: Path, how: str) -> None:
    model = small()
    assert built(model, tmp_path / "a") == ""
    jetson.setenv("STAND_IN_TENSORRT" if how == "can't be recorded" else "STAND_IN_CUDA", how)
    runner = opened(model, tmp_path / "b")
    facts = runner.facts()
    assert (facts["cuda_graph"], facts["cuda_graph_problem"]) == (False, NO_GRAPH[how])
    same_as_reference(model, runner, feeds(model))
    runner.close()
    assert alive() == 0


BAD_GRAPHS = {
    "launches nothing": "output scores: SNR 0.0 dB; fp32 needs 50 dB",
    "fails to launch": "cudaGraphLaunch: error (719)",
}


@pytest.mark.parametrize("how", BAD_GRAPHS)
def test_a_graph_that_gives_no_answer_is_no_engine(
    jetson: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    """What the run before it left in the outputs would pass for its answer."""
    model = small()
    assert built(model, tmp_path / "a") == ""
    jetson.setenv("STAND_IN_CUDA", how)
    with pytest.raises(EngineError) as found:
        opened(model, tmp_path / "b")
    assert str(found.value) == f"TensorRT 10.3.0 can't use the engine it built: {BAD_GRAPHS[how]}"
    assert alive() == 0


def test_everything_is_given_back(jetson: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Pinned memory, streams and graphs: an app opens and closes sessions for weeks."""
    model = small()
    assert built(model, tmp_path / "a") == ""
    for number in range(3):
        runner = opened(model, tmp_path / f"b{number}")
        assert alive() == 3 + 1 + 1  # three buffers, a stream, a graph
        runner.close()
        runner.close()
        assert alive() == 0


def test_an_engine_is_built_without_tf32_and_within_the_workspace(
    jetson: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert built(small(), tmp_path / "a") == ""
    (engine,) = EngineStore().root.glob(f"*/{ENGINE}")
    head = engine.read_bytes().partition(b"\n")[0]
    assert head == b'engine of the stand-in {"flags": [], "pools": {"0": 1073741824}}'


def test_an_engine_of_another_type_is_not_run(jetson: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It would write past its buffers."""
    jetson.setenv("STAND_IN_TENSORRT", "has another type")
    why = "the engine's image has another type or shape than image float32 1x3x16x16"
    assert built(small(), tmp_path / "a") == why


def test_odd_inputs_and_outputs(jetson: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = with_shapes(EDGES)
    assert built(model, tmp_path / "a") == ""
    runner = opened(model, tmp_path / "b")
    same_as_reference(model, runner, feeds(model))
    runner.close()


def test_answers_are_the_callers(jetson: pytest.MonkeyPatch, tmp_path: Path) -> None:
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
    "refuses": "TensorRT 10.3.0 refuses the file: conv (Conv): no such form",
    "builds nothing": "TensorRT 10.3.0 builds no engine of the file; its log says why",
    "loads nothing": "TensorRT 10.3.0 does not load the engine; its log says why",
    "fails to run": "TensorRT 10.3.0 failed to run the engine; its log says why",
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
    assert str(found.value) == f"switched off after 2 failures, the last: {FAULTS[how]}"


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


def test_a_damaged_engine_is_built_again(jetson: pytest.MonkeyPatch, tmp_path: Path) -> None:
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


def test_another_tensorrt_is_another_engine(jetson: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = small()
    assert built(model, tmp_path / "a") == ""
    sys.modules.pop("tensorrt")
    jetson.setenv("STAND_IN_VERSION", "10.13.3.9")
    assert built(model, tmp_path / "b") == ""
    assert len(list(EngineStore().root.glob(f"*/{ENGINE}"))) == 2


def test_two_precisions_are_two_engines(jetson: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = small()
    assert built(model, tmp_path / "a") == ""
    assert built(model, tmp_path / "b", "fp16") == ""
    runner = opened(model, tmp_path / "c", "fp16")
    same_as_reference(model, runner, feeds(model), rtol=1e-2)
    runner.close()


Settings = dict[str, Any]


def with_settings(folder: Path, change: Callable[[Settings], None]) -> TensorRtRunner:
    """The small model opened with other settings."""
    model = small()
    canonical = model.clone()
    run_passes(canonical)
    artifact = compile_model(canonical, profile("tensorrt"), "fp32")
    files = put_down(artifact, folder)
    settings = json.loads(files["trt.json"].read_bytes())
    change(settings)
    files["trt.json"].write_text(json.dumps(settings))
    inputs, outputs = specs(list(model.graph.inputs)), specs(list(model.graph.outputs))
    return run.open_runner(files, inputs, outputs, artifact.options, None)


def test_settings_that_make_no_sense_are_told(jetson: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in run.SETTINGS:
        with pytest.raises(EngineError) as found:
            with_settings(tmp_path, lambda settings, name=name: settings.update({name: None}))  # type: ignore[misc]
        assert str(found.value) == f"trt.json has no {name}"


def test_a_file_that_wants_a_newer_tensorrt_is_told(jetson: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(
        MissingDependency, match=r"^tensorrt 10\.13 or newer is not installed, .*\(here is 10\.3"
    ):
        with_settings(tmp_path, lambda settings: settings.update(floor="10.13"))


def test_another_golden_vector_is_told(jetson: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Inputs that this machine makes otherwise would look like an engine that computes garbage."""
    with pytest.raises(EngineNotReady) as found:
        with_settings(tmp_path, lambda settings: settings.update(golden_sha256="0" * 64))
    assert found.value.build.wait(60)
    assert found.value.build.why == "the golden vector is another one here than trt.json says"


def test_no_cuda_is_told(jetson: pytest.MonkeyPatch) -> None:
    jetson.setattr(cuda, "LIBRARIES", ("libnot-there.so.1", "libnor-this.so"))
    with pytest.raises(EngineError) as found:
        cuda.Cuda()
    assert str(found.value) == (
        "none of libnot-there.so.1, libnor-this.so can be loaded; JetPack's cuda-cudart package has it"
    )


def test_a_session_serves_at_once_and_takes_the_engine_when_it_stands(
    jetson: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = write(tmp_path, SMALL_CNN)
    bundle = build(path, targets=["ort", "tensorrt"])
    jetson.setattr(times_here, "compare", lambda runners, feeds: (1.0, 2.0))
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
    bundle = build(path, targets=["ort", "tensorrt"])
    jetson.setattr(times_here, "compare", lambda runners, feeds: (1.0, 2.0))
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


@pytest.mark.needs_tensorrt_gpu
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_on_a_real_gpu(tmp_path: Path, precision: str) -> None:
    """The same path on TensorRT itself, where a machine has it."""
    model = small()
    assert built(model, tmp_path / "a", precision) == ""
    runner = opened(model, tmp_path / "b", precision)
    same_as_reference(model, runner, feeds(model), rtol=1e-4 if precision == "fp32" else 1e-2)
    assert runner.facts()["cuda_graph"] is True
    runner.close()
