"""The runner of onnxruntime-qnn keeps the contract of edgekit.target.contract, on the emulator."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from edgekit_qnn import run

import edgekit
from edgekit.compiler.model.onnx_file import save_model
from edgekit.errors import EngineError, MissingDependency
from edgekit.runtime import Session
from edgekit.target.contract import stands_in_for
from tests.fixtures.models import SMALL_CNN, TWO_INPUTS, parse
from tests.targets.engine_trial import feeds, load, with_shapes

needs_qnn = pytest.mark.needs_qnn


@pytest.mark.skipif(find_spec("onnxruntime_qnn") is not None, reason="onnxruntime-qnn is installed")
def test_what_is_missing_and_how_to_get_it() -> None:
    with pytest.raises(MissingDependency) as missing:
        run.engine_version()
    text = "onnxruntime-qnn is not installed, and running on a Hexagon NPU needs it: "
    assert str(missing.value).startswith(text)
    assert "edgekit-sdk[qnn]" in missing.value.for_bundles


@needs_qnn
def test_answers_in_float16(tmp_path: Path) -> None:
    model = with_shapes(SMALL_CNN)
    runner, sample = load(model, "qnn", tmp_path), feeds(model)
    from edgekit.compiler.model.reference import Reference

    wanted, got = Reference(model).run(sample), runner.run(sample)
    for name, array in wanted.items():
        assert got[name].dtype == array.dtype
        assert np.linalg.norm(array - got[name]) < 3e-3 * np.linalg.norm(array)


@needs_qnn
def test_outputs_are_the_callers(tmp_path: Path) -> None:
    runner = load(parse(TWO_INPUTS), "qnn", tmp_path)
    ones = np.ones((1, 8), np.float32)
    first = runner.run({"left": ones, "right": ones})["sum"]
    runner.run({"left": ones * 5, "right": ones})
    np.testing.assert_allclose(first, 2.0, rtol=1e-3)


@needs_qnn
def test_all_nodes_are_on_the_npu_and_it_says_what_it_is(tmp_path: Path) -> None:
    runner = load(parse(TWO_INPUTS), "qnn", tmp_path)
    facts = runner.facts()
    assert list(facts["placement"]) == [run.PROVIDER]
    assert facts["emulated"] is True
    assert (runner.device, runner.precision) == ("Hexagon NPU v73, emulated", "fp16")
    assert stands_in_for(runner) == "a Hexagon NPU"
    assert run.engine_version().startswith("onnxruntime-qnn ")
    runner.close()


@needs_qnn
def test_what_is_not_on_the_npu_is_refused() -> None:
    text = '<ir_version: 10, opset_import: ["": 21]> g (float[1,4] x) => (float[1,4] y) { y = Erf(x) }'
    with pytest.raises(EngineError, match="not all of its nodes are taken by the NPU"):
        run.open_session(onnx.parser.parse_model(text).SerializeToString(), "73")


@needs_qnn
def test_a_damaged_file_and_a_damaged_context(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"no model")
    with pytest.raises(EngineError, match="did not load"):
        run.open_runner({"model.onnx": tmp_path / "model.onnx"}, [], [], {}, None)


@needs_qnn
def test_a_bundle_runs_on_the_emulator_and_elsewhere_on_ort(tmp_path: Path) -> None:
    """In child processes: one that has the package, and one that does not find it."""
    path = tmp_path / "small.onnx"
    path.write_bytes(save_model(with_shapes(SMALL_CNN)))
    bundle = edgekit.build(path, targets=["snapdragon-8-gen-3", "ort"])
    bundle.save(tmp_path / "small.edgekit")
    status = {variant.target: variant.status for variant in bundle.variants}["qnn"]
    assert status.startswith("verified by the HTP emulator of onnxruntime-qnn ")
    assert status.endswith("; not run on a Hexagon NPU")
    with Session(tmp_path / "small.edgekit", engine="qnn") as session:
        assert session.active.device == "Hexagon NPU v75, emulated"
    with Session(tmp_path / "small.edgekit") as session:  # nobody gets the emulator unasked
        assert session.active.variant.startswith("ort-")
    script = (
        "import sys, json; sys.modules['onnxruntime_qnn'] = None\n"
        "from edgekit.runtime import Session\n"
        f"session = Session({str(tmp_path / 'small.edgekit')!r}, engine='qnn')\n"
        "print(json.dumps([session.active.variant, session.fallbacks[0].reason]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    active, reason = json.loads(done.stdout)
    assert active.startswith("ort-")
    assert reason.startswith(("qnn is not installed", "onnxruntime-qnn is not installed"))


@needs_qnn
def test_nothing_is_printed_to_stdout() -> None:
    """Qualcomm's libraries print a line when they are loaded; stdout is for --json."""
    text = '<ir_version: 10, opset_import: ["": 21]> g (float[1,4] x) => (float[1,4] y) { y = Relu(x) }'
    script = (
        "import onnx; from edgekit_qnn.run import open_session\n"
        f"open_session(onnx.parser.parse_model({text!r}).SerializeToString(), '73')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == ""
