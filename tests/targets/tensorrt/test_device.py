"""The device side alone: CUDA's buffers, streams and graphs, what is asked of TensorRT, and trt.json."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from edgekit_tensorrt import run
from edgekit_tensorrt.compile import compile_model
from edgekit_tensorrt.device import cuda
from edgekit_tensorrt.device.engine import TensorRtRunner

from edgekit.compiler.passes import run_passes
from edgekit.errors import EngineError, EngineNotReady, MissingDependency
from edgekit.runtime.device_builds.engine_store import ENGINE, EngineStore
from tests.targets.engine_trial import feeds, profile, put_down, same_as_reference, specs
from tests.targets.tensorrt.jetson import NEEDS_STAND_INS, alive, built, opened, small

pytestmark = NEEDS_STAND_INS


NO_GRAPH = {
    "records nothing": "cudaStreamBeginCapture: operation not supported (801)",
    "spoils the recording": "cudaStreamEndCapture: capture invalidated (901)",
    "makes no graph": "cudaGraphInstantiateWithFlags: operation not supported (801)",
    "can't be recorded": "TensorRT 10.3.0 failed to run the engine; its log has the reason",
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
    assert found.value.build.reason == "the golden vector is another one here than trt.json says"


def test_no_cuda_is_told(jetson: pytest.MonkeyPatch) -> None:
    jetson.setattr(cuda, "LIBRARIES", ("libnot-there.so.1", "libnor-this.so"))
    with pytest.raises(EngineError) as found:
        cuda.Cuda()
    assert str(found.value) == (
        "none of libnot-there.so.1, libnor-this.so can be loaded; JetPack's cuda-cudart package has it"
    )
