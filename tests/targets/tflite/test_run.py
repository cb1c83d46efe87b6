"""The runner of LiteRT and tflite-runtime keeps the contract of edgekit.target.contract."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest
from edgekit_tflite import run
from edgekit_tflite.accelerators import GpuRunner

import edgekit
from edgekit.errors import EngineError, MissingDependency
from edgekit.target.registry import compiler
from edgekit.tensor_spec import TensorSpec
from tests.fixtures.models import SMALL_CNN, TWO_INPUTS, parse, write
from tests.targets.engine_trial import load, profile, put_down, specs, with_shapes

ROOT = Path(__file__).resolve().parents[3]
needs_tflite = pytest.mark.needs_tflite


@needs_tflite
def test_the_whole_of_a_small_cnn_is_delegated(tmp_path: Path) -> None:
    runner = load(with_shapes(SMALL_CNN), "tflite", tmp_path)
    assert (runner.device, runner.precision) == ("CPU", "fp32")
    assert runner.facts() == {
        "delegate_partitions": 1,
        "outside_delegate": {},
        "outside_delegate_nodes": [],
    }


def _op(index: int, name: str, inputs: Sequence[int], outputs: Sequence[int]) -> dict[str, object]:
    return {"index": index, "op_name": name, "inputs": inputs, "outputs": outputs}


def test_operators_outside_are_found_by_walking_back() -> None:
    """CONV -> GATHER -> CONV -> outputs, the two convolutions in partitions; a last CAST stands alone."""
    operators = [
        _op(0, "CONV_2D", [0, 10, -1], [1]),
        _op(1, "GATHER", [1, 11], [2]),
        _op(2, "CONV_2D", [2, 12, -1], [3]),
        _op(3, "CAST", [3], [4]),
        _op(4, "DELEGATE", [0], [1]),
        _op(5, "DELEGATE", [2], [3]),
    ]
    assert [op["op_name"] for op in run.outside_delegates(operators, [4])] == ["GATHER", "CAST"]
    assert [op["op_name"] for op in run.outside_delegates(operators[:4], [4])] == [
        "CONV_2D", "GATHER", "CONV_2D", "CAST",
    ]  # fmt: skip


SILENT_SCRIPT = """
import os, sys
from pathlib import Path
from edgekit_tflite import run
from tests.fixtures.models import SMALL_CNN
from tests.targets.engine_trial import load, with_shapes
load(with_shapes(SMALL_CNN), "tflite", Path(sys.argv[1]))
os.write(2, b"later")
"""


@needs_tflite
def test_loading_is_silent(tmp_path: Path) -> None:
    """The engine writes an INFO line to stderr, once a process."""
    done = subprocess.run(
        [sys.executable, "-c", SILENT_SCRIPT, str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("", "later")


def test_what_others_write_to_stderr_while_loading_is_kept() -> None:
    script = (
        "import os; from edgekit_tflite import run\n"
        "with run.quiet():\n"
        "    pass  # a load without the delegate: the line is still to come\n"
        "with run.quiet():\n"
        "    os.write(2, b'kept\\nINFO: Created TensorFlow Lite XNNPACK delegate for CPU.\\n')\n"
        "os.write(2, b'later')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == "kept\nlater"


@needs_tflite
def test_a_file_of_another_model_is_an_engine_error(tmp_path: Path) -> None:
    model = parse(TWO_INPUTS)
    artifact = compiler("tflite").compile_model(model, profile("tflite"), "fp32")
    files = put_down(artifact, tmp_path)
    inputs, outputs = specs(list(model.graph.inputs)), specs(list(model.graph.outputs))
    with pytest.raises(EngineError, match=r"model\.tflite has no signature 'x'; it has serving_default$"):
        run.open_runner(files, inputs, outputs, {**artifact.options, "signature": "x"}, 1)
    with pytest.raises(EngineError, match=r"model\.tflite has no 'other'; it has left, right$"):
        run.open_runner(files, [TensorSpec("other", "float32", (1,))], outputs, artifact.options, 1)
    for size, fits in ((8, True), (9, False)):  # an open size of the model's, which the file computed
        opened = [TensorSpec("sum", "float32", (-1, size))]
        if fits:
            runner = run.open_runner(files, inputs, opened, artifact.options, 1)
            assert runner.run({spec.name: spec.zeros() for spec in inputs})["sum"].shape == (1, 8)
        else:
            with pytest.raises(EngineError, match=r"holds sum float32 1x8 where the model has sum float32 "):
                run.open_runner(files, inputs, opened, artifact.options, 1)
    wider = [TensorSpec("left", "float32", (1, 9)), inputs[1]]
    with pytest.raises(EngineError, match=r"holds left float32 1x8 where the model has left float32 1x9$"):
        run.open_runner(files, wider, outputs, artifact.options, 1)


@needs_tflite
def test_integers_in_another_width_are_checked(tmp_path: Path) -> None:
    """An int64 of the model that the file holds as int32."""
    text = TWO_INPUTS.replace("float[", "int32[")
    model = parse(text)
    artifact = compiler("tflite").compile_model(model, profile("tflite"), "fp32")
    wide = [TensorSpec(name, "int64", (8,)) for name in ("left", "right")]
    runner = run.open_runner(
        put_down(artifact, tmp_path), wide, [TensorSpec("sum", "int64", (1, 8, 1))], artifact.options, 1
    )
    given = {"left": np.arange(8), "right": np.arange(8) * -3}
    total = runner.run(given)["sum"]
    assert (total.dtype, total.shape) == (np.dtype(np.int64), (1, 8, 1))
    assert total.ravel().tolist() == [-2 * n for n in range(8)]
    with pytest.raises(EngineError) as caught:
        runner.run({"left": np.arange(8) + 2**31, "right": np.arange(8)})
    assert str(caught.value) == (
        "left contains 2147483648 to 2147483655, but the .tflite file stores it as int32"
    )


def test_absence_on_a_32_bit_board_gives_its_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ai_edge_litert", None)
    monkeypatch.setitem(sys.modules, "tflite_runtime", None)
    monkeypatch.setattr("platform.machine", lambda: "armv7l")
    with pytest.raises(MissingDependency, match=r"^tflite-runtime .*: pip install 'numpy<2' tflite-runtime$"):
        run.engine_version()


PIP = ["-m", "pip", "install", "--quiet", "--only-binary=:all:", "numpy<2", "tflite-runtime==2.14.0"]


@pytest.fixture(scope="session")
def tflite_runtime(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tflite-runtime 2.14 and numpy 1.26, made once where pytest has a cache: how armv7l boards
    run."""
    cache: pytest.Cache | None = getattr(request.config, "cache", None)  # none with -p no:cacheprovider
    folder = tmp_path_factory.mktemp("packages") if cache is None else cache.mkdir("tflite-runtime")
    packages = folder / f"cp{sys.version_info.major}{sys.version_info.minor}"
    if not packages.is_dir():
        made = packages.with_name(f"{packages.name}-{os.getpid()}")
        done = subprocess.run(
            [sys.executable, *PIP, "--target", str(made)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            reason = next((line for line in done.stderr.splitlines() if "ERROR" in line), "pip failed")
            pytest.skip(f"tflite-runtime 2.14 has no wheel for this Python or cannot be had: {reason}")
        with suppress(OSError):  # another process was faster
            made.rename(packages)
    return packages


DEVICE_SCRIPT = """
import json, sys
import numpy as np
from edgekit.runtime import Session
with Session(sys.argv[1], engine="tflite", strict=True, threads=1) as session:
    answers = session.run(dict(np.load(sys.argv[2])))
    np.savez(sys.argv[3], **answers)
    engine = session.active.engine
loaded = sorted({m.partition(".")[0] for m in sys.modules} & {"onnx", "onnxruntime", "openvino", "click"})
print(json.dumps([engine, np.__version__, loaded]))
"""


@pytest.mark.slow
@needs_tflite
@pytest.mark.needs_ort
def test_a_bundle_runs_on_tflite_runtime(tflite_runtime: Path, tmp_path: Path) -> None:
    """On a device of its own: numpy 1.26, tflite-runtime and our source, nothing else."""
    bundle = edgekit.build(write(tmp_path, SMALL_CNN), targets=["tflite"], precision="fp16")
    bundle.save(tmp_path / "small.edgekit")
    given, expected = bundle.golden[0]
    np.savez(tmp_path / "given.npz", **given)  # type: ignore[arg-type]
    metadata = tmp_path / "site" / "edgekit_sdk-0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: edgekit-sdk\nVersion: 0\n")
    tflite = entry_points(group="edgekit.runners")["tflite"].value
    (metadata / "entry_points.txt").write_text(f"[edgekit.runners]\ntflite = {tflite}\n")
    path = [ROOT, ROOT / "targets", metadata.parent, tflite_runtime]
    done = subprocess.run(
        [sys.executable, "-S", "-c", DEVICE_SCRIPT, "small.edgekit", "given.npz", "answers.npz"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    engine, numpy_version, loaded = json.loads(done.stdout)
    assert (engine, numpy_version[:5], loaded) == ("tflite-runtime 2.14.0", "1.26.", [])
    answers = np.load(tmp_path / "answers.npz")
    for name, array in expected.items():
        np.testing.assert_allclose(answers[name], array, rtol=1e-4, atol=1e-4)


@needs_tflite
def test_a_file_of_another_model_is_no_gpu_s_either(tmp_path: Path) -> None:
    """With the interface that the GPU is run by, on the CPU."""
    compiled_model = pytest.importorskip("ai_edge_litert.compiled_model")
    model = parse(TWO_INPUTS)
    artifact = compiler("tflite").compile_model(model, profile("tflite"), "fp32")
    path = put_down(artifact, tmp_path)["model.tflite"]
    opened = compiled_model.CompiledModel.from_file(str(path))
    inputs, outputs = specs(list(model.graph.inputs)), specs(list(model.graph.outputs))
    options = {**artifact.options, "precision": "fp32", "signature": "x"}
    with pytest.raises(EngineError, match=r"model\.tflite has no signature 'x'$"):
        GpuRunner(opened, "LiteRT", inputs, outputs, options, path)
