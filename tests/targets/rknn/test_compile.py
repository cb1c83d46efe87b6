"""What is written for rknn-toolkit2, and what is said where it is not installed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from edgekit_rknn import compile as rknn
from edgekit_rknn import npu_child, run, simulator
from edgekit_rknn.compile import estimate, read_layers

from edgekit.compiler.evaluate.verify import write_files
from edgekit.compiler.model.onnx_file import signature
from edgekit.compiler.passes import run_passes
from edgekit.compiler.toolchains.environment import environment_of
from edgekit.errors import EngineError, MissingDependency, UnsupportedError
from edgekit.system.formats import strict_json
from edgekit.target.installed_profiles import find_profile, profile_names
from edgekit.tensor_spec import TensorSpec

pytestmark = pytest.mark.needs_ort
needs_toolchain = pytest.mark.skipif(
    environment_of("rknn") is None, reason="no rknn-toolkit2: EDGEKIT_RKNN_PYTHON is not set (docs/chips.md)"
)


def canonical(text: str) -> ir.Model:
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g {text}')
    model = ir.from_proto(onnx.shape_inference.infer_shapes(proto))
    run_passes(model)
    return model


def relu() -> ir.Model:
    return canonical("(float[1,3,8,8] x) => (float[1,3,8,8] y) { y = Relu (x) }")


def test_the_error_without_the_toolkit_says_how_to_make_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDGEKIT_RKNN_PYTHON", raising=False)
    for step in (
        lambda: rknn.compile_model(relu(), find_profile("rk3588"), "fp16"),
        lambda: simulator.engine_version(),
    ):
        with pytest.raises(
            MissingDependency, match=r"toolchain\.lock, and set EDGEKIT_RKNN_PYTHON to its Python"
        ):
            step()


def test_the_command_where_the_board_lacks_the_runtime() -> None:
    if (version := _lite()) is not None:
        pytest.skip(f"rknn-toolkit-lite2 {version} is installed")
    with pytest.raises(MissingDependency, match=r"^rknn-toolkit-lite2 is not installed, and running"):
        run.engine_version()


def _lite() -> str | None:
    try:
        return run.engine_version()
    except MissingDependency:
        return None


def test_what_opset_19_lacks_and_other_types_are_named() -> None:
    model = canonical("(int64[1,4] x) => (float[1,4] y) { y = Cast <to = 1> (x) }")
    with pytest.raises(UnsupportedError) as refusal:
        rknn.compile_model(model, find_profile("rk3566"), "fp16")
    (finding,) = refusal.value.findings
    assert (finding.code, finding.node) == ("EK1004", "x")
    assert rknn.check_model(model, find_profile("rk3566")) == refusal.value.findings
    assert "the NPU supports float inputs and outputs only" in str(refusal.value)


def test_each_profile_names_a_chip() -> None:
    names = [name for name, owner in profile_names().items() if owner == "rknn"]
    chips = {find_profile(name).facts["accelerator"].value for name in names}
    assert chips == {"rk3588", "rk3576", "rk3566", "rk3562"}


LOG = """\
D RKNN: [08:04:02.949]               Network Layer Information Table
D RKNN: [08:04:02.949] ID   OpType        DataType Target InputShape   OutputShape  Cycles(DDR/NPU/Total) RW(KB) FullName
D RKNN: [08:04:02.949] 0    InputOperator INT8     CPU    \\            (1,3,9,9)    0/0/0                 0      InputOperator:x
D RKNN: [08:04:02.949] 1    ConvClip      INT8     NPU    (1,3,9,9),(8,3,3,3),(8)   (1,8,9,9)  23/112/112 151    Conv:/stem
D RKNN: [08:04:02.949] 2    exSoftmax13   FLOAT16  CPU    (1,8)        (1,8)        0/0/0                 1      Softmax:/end
D RKNN: [08:04:02.972] Total Internal Memory Size: 2KB
D RKNN: [08:04:02.972] Total Weight Memory Size: 6.5KB
"""  # noqa: E501


def test_the_compiler_s_list_of_layers_is_an_estimate() -> None:
    files = {run.LAYERS_FILE: strict_json.encode(read_layers(LOG))}
    found = estimate(files, find_profile("rk3588"))
    assert found is not None
    assert (found.tool, found.configuration, found.cycles) == ("rknn-toolkit2 2.5.0", "rk3588", 112)
    assert found.memory_bytes == {"internal": 2048, "weights": 6656}
    assert [(n.node, n.device, n.cycles, n.why) for n in found.nodes] == [
        ("/stem", "NPU", 112, ""),
        ("/end", "CPU", None, "the compiler gives it to the CPU"),
    ]
    assert estimate({run.LAYERS_FILE: strict_json.encode(read_layers(""))}, find_profile("rk3588")) is None


def test_outputs_are_those_of_the_model() -> None:
    spec = TensorSpec("y", "float32", (1, 4))
    found = run.named([np.arange(4, dtype=np.float16).reshape(4, 1)], [spec], "it")
    assert found["y"].dtype == np.float32
    assert found["y"].tolist() == [[0, 1, 2, 3]]
    for wrong in (None, [], [np.zeros(3)]):
        with pytest.raises(EngineError):
            run.named(wrong, [spec], "it")


@pytest.mark.slow
@needs_toolchain
def test_a_network_is_built_and_simulated(tmp_path: Path) -> None:
    model = relu()
    artifact = rknn.compile_model(model, find_profile("rk3566"), "fp16")
    assert artifact.files[run.MODEL_FILE][:4] == b"RKNN"
    files = write_files(artifact, tmp_path)
    runner = simulator.open_runner(files, *signature(model), artifact.options, 1)
    try:
        x = np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype(np.float32)
        np.testing.assert_allclose(runner.run({"x": x})["y"], np.maximum(x, 0), atol=2e-3)
    finally:
        runner.close()


def test_a_simulator_without_outputs_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Toolkit:
        """Simulator that failed: ``inference`` returns None then."""

        def inference(self, **_: object) -> None: ...

    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(npu_child._built, "rknn", Toolkit())
    np.savez(tmp_path / "in.npz", x=np.zeros((1, 4), np.float32))
    with pytest.raises(RuntimeError, match=r"^the simulator gave no outputs$"):
        npu_child.answer({"do": "run", "inputs": ["x"]}, str(tmp_path))
