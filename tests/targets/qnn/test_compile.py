"""Compiling for the NPU: what is refused, the same bytes everywhere, float16, context binaries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from edgekit_qnn.compile import check_model, compile_model
from edgekit_qnn.htp_types import with_htp_types

from edgekit.compiler.model.reference import Reference
from edgekit.compiler.model.rewriting import array_of
from edgekit.compiler.passes import run_passes
from edgekit.errors import UnsupportedError
from edgekit.target.installed_profiles import find_profile
from tests.fixtures.models import SMALL_CNN
from tests.targets.engine_trial import feeds, with_shapes

QNN = find_profile("qnn")
ELITE = find_profile("snapdragon-8-elite")
MASKED = """
<ir_version: 10, opset_import: ["": 23]>
masked (float[1,4] x, float[1,4] m) => (float[1,4] y) <float low = {-1e9}>
{
    [less] a = Mul(m, low)
    [sum] b = Add(x, a)
    [scores] y = Softmax(b)
}
"""
PAIRED = """
<ir_version: 10, opset_import: ["": 23]>
paired (float[1,4] x) => (float[1,4] y) <float s = {0.02}, uint8 z = {128}>
{
    [q] a = QuantizeLinear(x, s, z)
    [d] b = DequantizeLinear(a, s, z)
    [relu] c = Relu(b)
    [q1] e = QuantizeLinear(c, s, z)
    [d1] f = DequantizeLinear(e, s, z)
    [tanh] y = Tanh(f)
}
"""


def types(model: ir.Model) -> dict[str, set[str]]:
    """Node -> the types of its float inputs and outputs."""
    floats = (ir.DataType.FLOAT, ir.DataType.FLOAT16)
    return {
        str(node.name): {v.dtype.name for v in (*node.inputs, *node.outputs) if v and v.dtype in floats}
        for node in model.graph
        if node.op_type not in ("Cast", "QuantizeLinear", "DequantizeLinear")
    }


def test_what_is_not_between_pairs_is_float16() -> None:
    typed, names = with_htp_types(with_shapes(PAIRED))
    assert types(typed) == {"relu": {"FLOAT"}, "tanh": {"FLOAT16"}}
    assert names == ["tanh"]


def test_a_sigmoid_in_float16_is_written_with_tanh() -> None:
    text = (
        '<ir_version: 10, opset_import: ["": 23]> g (float[1,64] x) => (float[1,64] y) { [s] y = Sigmoid(x) }'
    )
    model = with_shapes(text)
    typed, names = with_htp_types(model)
    assert [node.op_type for node in typed.graph] == ["Cast", "Mul", "Tanh", "Mul", "Add", "Cast"]
    assert set.union(*types(typed).values()) == {"FLOAT16"}
    assert names[-1] == "s"
    sample = {"x": np.linspace(-9, 9, 64, dtype=np.float32)[None]}
    wanted, got = (Reference(each).run(sample)["y"] for each in (model, typed))
    np.testing.assert_allclose(got, wanted, atol=5e-4)


def test_int8_activations_are_stored_as_uint8() -> None:
    text = PAIRED.replace("uint8 z = {128}", "int8 z = {-100}")
    model = with_shapes(text)
    typed, _ = with_htp_types(model)
    pairs = [node for node in typed.graph if node.op_type in ("QuantizeLinear", "DequantizeLinear")]
    zeros = [array_of(node.inputs[2]) for node in pairs]
    assert [(str(zero.dtype), int(zero)) for zero in zeros if zero is not None] == [("uint8", 28)] * 4
    sample = {"x": np.array([[-5, -0.1, 0.7, 9]], np.float32)}
    wanted, got = (Reference(each).run(sample)["y"] for each in (model, typed))
    np.testing.assert_allclose(got, wanted, atol=1e-3)


ONE_SCALE = """
<ir_version: 10, opset_import: ["": 23]>
g (float[1,1,4,4] x) => (float[1,2,4,4] y)
<float s = {0.02}, uint8 z = {128}, int8[2,1,1,1] w = {-7, 90}, float v = {0.01}, int8 o = {0}>
{
    a = QuantizeLinear(x, s, z)
    b = DequantizeLinear(a, s, z)
    c = DequantizeLinear(w, v, o)
    d = Conv(b, c)
    e = QuantizeLinear(d, s, z)
    y = DequantizeLinear(e, s, z)
}
"""


def test_weights_with_one_scale_have_one_for_each_channel() -> None:
    model = with_shapes(ONE_SCALE)
    typed, _ = with_htp_types(model)
    (weights,) = [
        n for n in typed.graph if n.op_type == "DequantizeLinear" and array_of(n.inputs[0]) is not None
    ]
    scales = array_of(weights.inputs[1])
    assert scales is not None
    assert scales.tolist() == [np.float32(0.01)] * 2
    sample = {"x": np.random.default_rng(0).normal(size=(1, 1, 4, 4)).astype(np.float32)}
    wanted, got = (Reference(each).run(sample)["y"] for each in (model, typed))
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    "changes",
    [
        {"int8 o = {0}": "int8 o = {3}"},
        {
            "int8 o = {0}": "int8 o = {0}, int32[2] i = {5, 7}, float j = {0.0002}, int32 k = {0}",
            "d = Conv(b, c)": "f = DequantizeLinear(i, j, k)\n    d = Conv(b, c, f)",
        },
    ],
    ids=["a zero point", "an integer bias"],
)
def test_weights_with_one_scale_keep_it_where_the_emulator_needs_it(changes: dict[str, str]) -> None:
    text = ONE_SCALE
    for old, new in changes.items():
        text = text.replace(old, new)
    typed, _ = with_htp_types(with_shapes(text))
    scales = [array_of(n.inputs[1]) for n in typed.graph if n.op_type == "DequantizeLinear"]
    assert [scale.size for scale in scales if scale is not None] == [1] * len(scales)


def test_masks_are_limited_to_float16() -> None:
    typed, _ = with_htp_types(with_shapes(MASKED))
    assert set.union(*types(typed).values()) == {"FLOAT16"}
    limits = [v.const_value.numpy() for v in typed.graph.initializers.values() if v.const_value is not None]
    assert [float(limit) for limit in limits] == [-65504.0]


def test_a_node_that_the_emulator_computes_wrongly_is_no_file() -> None:
    text = "{ [far] y = Conv<pads=[3,3,3,3]>(x, w) }"
    model = with_shapes(
        f'<ir_version: 10, opset_import: ["": 23]> '
        f"g (float[1,2,4,4] x) => (float[1,2,8,8] y) <float[2,2,3,3] w = {{{','.join('1' * 36)}}}> {text}"
    )
    with pytest.raises(UnsupportedError, match=r"a window that lies wholly in the pads is computed wrongly"):
        compile_model(model, QNN, "fp32")


@pytest.mark.needs_qnn
def test_all_refused_nodes_are_named_at_once() -> None:
    model = with_shapes(
        '<ir_version: 10, opset_import: ["": 23]> g (float[1,2,4,2,4,2] x) => (float[1,2,2,4,2,4] y) '
        "{ [one] a = Transpose<perm=[0,1,3,5,2,4]>(x)\n[two] b = Relu(a)\n"
        "[three] y = Transpose<perm=[0,1,3,4,2,5]>(b) }"
    )
    found = check_model(model, QNN)
    assert [finding.node for finding in found] == ["one", "two", "three"]  # the NPU has five dimensions
    with pytest.raises(UnsupportedError) as refused:
        compile_model(model, QNN, "fp32")
    assert refused.value.findings == found


@pytest.mark.needs_qnn
def test_an_operator_without_a_kernel_is_expanded() -> None:
    text = '<ir_version: 10, opset_import: ["": 23]> g (float[1,4,4] x) => (float[1] y) { [det] y = Det(x) }'
    assert check_model(with_shapes(text), QNN) == []


@pytest.mark.needs_qnn
def test_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    """The context binary too: two folders, two processes."""
    script = (
        "import sys; from pathlib import Path; from tests.targets.qnn.test_compile import small, ELITE\n"
        "from edgekit_qnn.compile import compile_model\n"
        "for name, content in compile_model(small(), ELITE, 'fp32').files.items():\n"
        "    Path(sys.argv[1], name).write_bytes(content)"
    )
    artifact = compile_model(small(), ELITE, "fp32")
    assert sorted(artifact.files) == ["context.onnx", "context_qnn.bin", "model.onnx"]
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, capture_output=True)
    for name, content in artifact.files.items():
        assert (tmp_path / name).read_bytes() == content


@pytest.mark.needs_qnn
def test_a_context_of_another_npu_gives_way_to_the_model(tmp_path: Path) -> None:
    from edgekit_qnn.run import open_runner

    from edgekit.compiler.evaluate.verify import write_files
    from edgekit.compiler.model.onnx_file import signature

    model = small()
    artifact = compile_model(model, ELITE, "fp32")
    files = write_files(artifact, tmp_path)
    (tmp_path / "context_qnn.bin").write_bytes(b"no context")
    inputs, outputs = signature(model)
    runner = open_runner(files, inputs, outputs, artifact.options, 1)
    assert "context_refused" in runner.facts()
    sample = feeds(model)
    assert np.isfinite(next(iter(runner.run(sample).values()))).all()


def small() -> ir.Model:
    model = with_shapes(SMALL_CNN)
    run_passes(model)
    return model
