"""The runner of ONNX Runtime keeps the contract of edgekit.target.contract."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from edgekit_ort import run

from edgekit.errors import EngineError
from edgekit.tensor_spec import TensorSpec
from tests.fixtures.models import TWO_INPUTS, parse
from tests.targets.engine_trial import feeds, load, same_as_reference, with_shapes

pytestmark = pytest.mark.needs_ort


def test_facts_and_what_runs(tmp_path: Path) -> None:
    runner = load(parse(TWO_INPUTS), "ort", tmp_path)
    assert runner.facts() == {"providers": ["CPUExecutionProvider"]}
    assert (runner.device, runner.precision) == ("CPU", "fp32")
    assert run.engine_version().startswith("ONNX Runtime 1.")
    runner.close()


def test_threads_and_spinning(tmp_path: Path) -> None:
    load(parse(TWO_INPUTS), "ort", tmp_path)
    session = run.open_session(tmp_path / "model.onnx", threads=3)
    settings = session.get_session_options()
    assert settings.intra_op_num_threads == 3
    assert settings.inter_op_num_threads == 1
    assert settings.get_session_config_entry("session.intra_op.allow_spinning") == "0"


def test_session_options_of_a_package(tmp_path: Path) -> None:
    load(parse(TWO_INPUTS), "ort", tmp_path)
    files, specs = {"model.onnx": tmp_path / "model.onnx"}, [TensorSpec("sum", "float32", (1, 8))]
    given = {"session.disable_prepacking": "1"}
    runner = run.open_runner(files, (), specs, {"session_options": given}, 1)
    settings = runner._session.get_session_options()
    assert settings.get_session_config_entry("session.disable_prepacking") == "1"
    with pytest.raises(RuntimeError, match="allow_spinning"):  # EdgeKit's own are not there
        settings.get_session_config_entry("session.intra_op.allow_spinning")
    hostile = {"session_options": {**given, "session.optimized_model_filepath": str(tmp_path / "written")}}
    with pytest.raises(
        EngineError, match=r"session option 'session\.optimized_model_filepath' of a model pack"
    ):
        run.open_runner(files, (), specs, hostile, 1)
    assert not (tmp_path / "written").exists()


def test_optimizers_are_left_out_by_a_session_option() -> None:
    """Stock ONNX Runtime leaves them out of a package too."""
    options = run.session_options_of(keep_float_regions=True)
    assert options[run.DISABLED_OPTIMIZERS] == "Pad_Fusion;QDQPropagationTransformer;WeightBiasQuantization"
    assert set(options) <= run.ALLOWED_SESSION_OPTIONS


SHUFFLE = """
<ir_version: 10, opset_import: ["": 23]>
shuffle (float[1,4,2,2] x) => (float[1,1,2,2] y)
    <float s = {0.03}, int8 z = {2}, int64[5] a = {1,2,2,2,2}, int64[4] b = {1,4,2,2},
     float[1,4,1,1] w = {1,2,3,4}>
{
    q = QuantizeLinear(x, s, z)
    d = DequantizeLinear(q, s, z)
    r = Reshape(d, a)
    t = Transpose<perm=[0,2,1,3,4]>(r)
    q1 = QuantizeLinear(t, s, z)
    d1 = DequantizeLinear(q1, s, z)
    u = Reshape(d1, b)
    y = Conv(u, w)
}
"""

WRONG_AT_FULL_OPTIMIZATION = {
    "a MaxPool's own padding is -inf, not 0": """
        pool (float[1,2,4,4] x) => (float[1,2,2,2] y)
            <int64[8] by = {0,0,0,0,0,0,1,1}, float low = {-5.0}, float high = {-1.0}>
        {
            below = Clip(x, low, high)
            p = Pad(below, by)
            y = MaxPool<kernel_shape=[3,3], strides=[2,2]>(p)
        }""",
    "floats are not rounded to int8": """
        dense (float[3,8] x) => (float[3,2] y)
            <int8[8,2] w = {1,-2,3,-4,5,-6,7,-8,9,-10,11,-12,13,-14,15,127}, float[2] s = {0.02, 0.05}>
        {
            v = DequantizeLinear<axis=1>(w, s)
            y = MatMul(x, v)
        }""",
    "float weights between pairs stay float": """
        island (float[1,1,1,1] x) => (float[1,1,1,1] y)
        <float[1,2,1,1] w = {100.0, 0.19}, float s = {0.02}, uint8 z = {128}>
        {
            none = Sub(x, x)
            both = Concat<axis = 1>(none, x)
            a = QuantizeLinear(both, s, z)
            b = DequantizeLinear(a, s, z)
            c = Conv(b, w)
            e = QuantizeLinear(c, s, z)
            y = DequantizeLinear(e, s, z)
        }""",
}


@pytest.mark.parametrize("what", WRONG_AT_FULL_OPTIMIZATION)
def test_optimizations_that_change_the_answer_are_off(what: str, tmp_path: Path) -> None:
    model = with_shapes(f'<ir_version: 10, opset_import: ["": 23]> {WRONG_AT_FULL_OPTIMIZATION[what]}')
    same_as_reference(model, load(model, "ort", tmp_path), feeds(model))


@pytest.mark.needs_ort_after_1_23
def test_int8_pairs_across_a_reshape_load() -> None:
    """With opset 21 or newer: QuantizeLinear of 20 has no output_dtype for the optimizer to get wrong."""
    content = ir.to_proto(parse(SHUFFLE)).SerializeToString()
    x = np.linspace(-1, 1, 16, dtype=np.float32).reshape(1, 4, 2, 2)
    plain, fast = (
        run.open_session(content, 1, optimize).run(["y"], {"x": x})[0] for optimize in (False, True)
    )
    assert np.allclose(plain, fast, atol=1e-6)


def test_what_it_refuses_is_not_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """ONNX Runtime prints "EP Error" to stdout and tries again, for another provider; here is one."""
    path = tmp_path / "model.onnx"
    path.write_bytes(ir.to_proto(parse(TWO_INPUTS)).SerializeToString().replace(b"Add", b"A\xbdd"))
    with pytest.raises(EngineError, match=r"^ONNX Runtime 1\.\S+ did not load \S+model\.onnx: "):
        run.open_runner({"model.onnx": path}, [], [], {}, 1)
    assert capsys.readouterr() == ("", "")


def test_a_failing_run_is_an_engine_error(tmp_path: Path) -> None:
    runner = load(parse(TWO_INPUTS), "ort", tmp_path)
    with pytest.raises(EngineError, match=r"^ONNX Runtime 1\.\S+ failed to run: .*right"):
        runner.run({"left": np.ones((1, 8), np.float32)})
