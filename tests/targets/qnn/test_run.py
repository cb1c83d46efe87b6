"""The runner of onnxruntime-qnn on the emulator, and forms that it needs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from edgekit_qnn import run
from edgekit_qnn.htp_types import refused_forms, with_htp_types

import edgekit
from edgekit.compiler.model.onnx_file import save_model
from edgekit.compiler.model.reference import Reference
from edgekit.errors import EngineError
from edgekit.runtime import Session
from edgekit.target.contract import stands_in_for
from tests.fixtures.models import SMALL_CNN, TWO_INPUTS, parse
from tests.targets.engine_trial import feeds, load, with_shapes

needs_qnn = pytest.mark.needs_qnn


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


pytestmark = pytest.mark.needs_ort

POOL = """
<ir_version: 10, opset_import: ["": 23]>
pool (float[1,3,9,7] x) => (float[1,3,H,W] y) { [p] y = AveragePool<ATTRIBUTES>(x) }
"""


@pytest.mark.parametrize(
    ("attributes", "size", "pools"),
    [
        ("kernel_shape=[2,2], strides=[2,2], ceil_mode=1", "5,4", 0),
        ("kernel_shape=[3,2], count_include_pad=1, pads=[1,1,1,0]", "9,7", 0),
        ("kernel_shape=[3,3], count_include_pad=1, pads=[1,1,1,1]", "9,7", 1),
        ("kernel_shape=[3,2], pads=[1,0,1,1]", "9,7", 1),
    ],
)
def test_averages_that_are_uneven_at_the_borders_are_convolutions(
    attributes: str, size: str, pools: int
) -> None:
    model = with_shapes(POOL.replace("ATTRIBUTES", attributes).replace("H,W", size))
    typed, _ = with_htp_types(model)
    assert [node.op_type for node in typed.graph].count("AveragePool") == pools
    feed = {"x": np.random.default_rng(1).normal(size=(1, 3, 9, 7)).astype(np.float32)}
    np.testing.assert_allclose(Reference(typed).run(feed)["y"], Reference(model).run(feed)["y"], atol=4e-3)
    assert refused_forms(model, "qnn") == []


DEEP = "x) => (float[1,2,4,4,4] y) { y = AveragePool<kernel_shape=[3,3,3], pads=[1,1,1,1,1,1]COUNT>(x) }"
FAR = "x, float[2,2,3,3] w) => (float[1,2,8,8] y) { y = Conv<pads=[3,3,3,3]>(x, w) }"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (f"float[1,2,4,4,4] {DEEP.replace('COUNT', ', count_include_pad=1')}", 1),
        (f"float[1,2,4,4,4] {DEEP.replace('COUNT', '')}", 0),
        (f"float[1,2,4,4] {FAR}", 1),
        (f"float[1,2,4,4] {FAR.replace('3,3,3,3]>', '2,2,2,2]>').replace('8,8] y', '6,6] y')}", 0),
    ],
)
def test_what_has_no_other_form_is_named(text: str, count: int) -> None:
    found = refused_forms(with_shapes(f'<ir_version: 10, opset_import: ["": 23]> g ({text}'), "qnn")
    assert [(each.code, each.node) for each in found] == [("EK1002", "y")] * count
