"""Files for TFLite Micro, and Vela's for Ethos-U."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest
from edgekit_tflm import vela
from edgekit_tflm.compile import compared_without_scales, compile_model
from edgekit_tflm.kernels import KERNELS

from edgekit.compiler.lowering.io_layouts import lay_out
from edgekit.diagnostics import errors
from edgekit.errors import EngineError, MissingDependency, UnsupportedError
from edgekit.target import registry
from edgekit.target.build_target import resolve
from edgekit.target.installed_profiles import find_profile
from tests.targets.engine_trial import with_shapes
from tests.targets.tflm.networks import SHUFFLED, classifier, compiled, quantized


def test_all_is_on_integers_and_nothing_is_moved() -> None:
    artifact = compiled(quantized(classifier()))
    assert artifact.facts["ops"] == {
        "ADD": 1, "CONV_2D": 1, "DEPTHWISE_CONV_2D": 1, "FULLY_CONNECTED": 1, "HARD_SWISH": 1, "MEAN": 1,
        "PAD": 1, "RESHAPE": 1, "SOFTMAX": 1,
    }  # fmt: skip
    assert artifact.facts["transposed_bytes"] == 0
    (taken,), (given,) = artifact.options["inputs"], artifact.options["outputs"]
    assert (taken["dtype"], taken["shape"], taken["order"]) == ("int8", [1, 16, 16, 3], [0, 2, 3, 1])
    assert (given["dtype"], given["scale"], given["zero_point"]) == ("int8", 1 / 256, -128)
    assert artifact.options["precision"] == "int8"
    assert artifact.facts["kernels"] == [
        "AddAdd", "AddConv2D", "AddDepthwiseConv2D", "AddFullyConnected", "AddHardSwish", "AddMean",
        "AddPad", "AddReshape", "AddSoftmax",
    ]  # fmt: skip
    assert artifact.facts["memory_bytes"] == {"flash": len(artifact.files["model.tflite"])}


def test_a_float_model_keeps_float_ends() -> None:
    artifact = compiled(classifier())
    assert artifact.options["precision"] == "fp32"
    assert "scale" not in artifact.options["inputs"][0]


def test_the_model_is_not_changed() -> None:
    model = quantized(classifier())
    before = [(node.op_type, [v and v.name for v in node.inputs]) for node in model.graph]
    compiled(model)
    assert [(node.op_type, [v and v.name for v in node.inputs]) for node in model.graph] == before
    assert [str(v.dtype) for v in (*model.graph.inputs, *model.graph.outputs)] == ["FLOAT", "FLOAT"]


WITHOUT_KERNEL = """
<ir_version: 10, opset_import: ["": 23]>
odd (float[1,4] x) => (float[1,4] y, float[1,4] z) { y = Sign(x) z = Gelu(x) }
"""


def test_what_tflm_has_no_kernel_for_is_named_all_at_once() -> None:
    model, profile = with_shapes(WITHOUT_KERNEL), find_profile("tflm")
    found = errors(registry.compiler("tflm").check_model(model, profile))
    assert [(finding.code, finding.node, finding.message) for finding in found] == [
        ("EK1001", "y", "TFLite Micro has no kernel for SIGN"),
        ("EK1001", "z", "TFLite Micro has no kernel for GELU"),
    ]
    with pytest.raises(UnsupportedError) as error:
        compile_model(model, profile, "fp32")
    assert str(error.value).startswith("tflm: 2 nodes have no kernel in TFLite Micro\n")


def test_a_transposition_of_six_axes_is_one_of_fewer() -> None:
    """TFLM takes five; LiteRT, which takes six, gets the file that it got before."""
    model = with_shapes(SHUFFLED)
    assert compiled(model).facts["ops"]["TRANSPOSE"] == 1
    assert len(compiled(model).facts["transposes"]) == 1


def test_kernels_are_named_as_apps_register_them() -> None:
    assert list(KERNELS) == sorted(KERNELS)
    assert all(call.startswith("Add") for call in KERNELS.values())


UNTAKEN = """
<ir_version: 10, opset_import: ["": 23]>
whole (int64[1,4] k) => (int64[1,4] y) { y = Abs(k) }
"""


@pytest.mark.needs_tflm
def test_what_a_kernel_does_not_take_is_told_in_its_own_words() -> None:
    model, profile = with_shapes(UNTAKEN), find_profile("tflm")
    (found,) = errors(registry.compiler("tflm").check_model(model, profile))
    assert (found.code, found.node) == ("EK1002", "y")
    assert found.message.startswith("TFLite Micro's ")


COARSE = """
<ir_version: 10, opset_import: ["": 23]>
coarse (float[1,8] x) => (float[1,8] y)
    <float s = {0.05}, int8 z = {3}, float t = {0.02}, int8 u = {-100}>
{
    q = QuantizeLinear(x, s, z)
    d = DequantizeLinear(q, s, z)
    r = Softmax(d)
    o = QuantizeLinear(r, t, u)
    y = DequantizeLinear(o, t, u)
}
"""


def test_a_softmax_that_is_stored_by_another_scale_is_rounded_once() -> None:
    """Not to steps of 1/256 and then again."""
    assert compiled(with_shapes(COARSE)).facts["ops"] == {"QUANTIZE": 1, "SOFTMAX": 1}
    asked = COARSE.replace("t = {0.02}, int8 u = {-100}", "t = {0.00390625}, int8 u = {-128}")
    assert compiled(with_shapes(asked)).facts["ops"] == {"SOFTMAX": 1}


def test_integers_at_both_ends_where_they_are_asked_for() -> None:
    model = classifier()
    lay_out(model, "int8", [resolve(find_profile("tflm"))])
    artifact = compiled(quantized(model))
    (taken,), (given,) = artifact.options["inputs"], artifact.options["outputs"]
    assert (taken["dtype"], given["dtype"]) == ("int8", "int8")
    assert compiled(model).options["inputs"][0]["dtype"] == "float32"  # a float variant has no integers


LAST_IN_FLOAT = """
<ir_version: 10, opset_import: ["": 23]>
last (float[1,8] x) => (float[1,8] y) <float s = {0.05}, int8 z = {3}>
{
    q = QuantizeLinear(x, s, z)
    d = DequantizeLinear(q, s, z)
    y = Exp(d)
}
"""


def test_an_end_that_is_made_in_float_is_refused_where_integers_are_asked_for() -> None:
    model = with_shapes(LAST_IN_FLOAT)
    assert compiled(model).options["inputs"][0]["dtype"] == "int8"
    lay_out(model, {"y": "int8"}, [resolve(find_profile("tflm"))])
    with pytest.raises(UnsupportedError) as error:
        compiled(model)
    assert str(error.value) == (
        "tflm: --io int8 can't be obeyed\n  EK1002  y  Exp  y is not stored as 8-bit integers by one scale; "
        "build without --io y=int8"
    )


@pytest.mark.parametrize(("dtype", "count"), [("int16", 1), ("int8", 0), ("float", 0)])
def test_int16_can_not_be_compared(dtype: str, count: int) -> None:
    text = f'<ir_version: 10, opset_import: ["": 21]> g ({dtype}[4] a, {dtype}[4] b) => (bool[4] y) '
    model = ir.from_proto(onnx.parser.parse_model(text + "{ [more] y = Greater(a, b) }"))
    found = compared_without_scales(model, "tflm")
    assert [(each.code, each.node) for each in found] == count * [("EK1004", "more")]


def test_a_microcontroller_alone_has_no_estimate() -> None:
    assert vela.estimate({"model.tflite": b""}, find_profile("tflm")) is None


@pytest.mark.needs_vela
@pytest.mark.parametrize("name", ["ethos-u55", "ethos-u65", "ethos-u85"])
def test_all_of_a_quantized_network_is_on_the_npu(name: str) -> None:
    found = vela.estimate(compiled(quantized(classifier())).files, find_profile(name))
    assert found is not None
    assert found.tool.startswith("ethos-u-vela ")
    assert found.configuration.startswith(f"{name}-")
    assert "system-config=" in found.configuration
    assert "memory-mode=" in found.configuration
    assert {node.device for node in found.nodes} == {"NPU"}
    assert not any(node.why for node in found.nodes)
    assert found.cycles is not None
    assert 0 < found.cycles < 1e6
    assert found.memory_bytes["ram"] > 16 * 16 * 3
    assert not found.notes


@pytest.mark.needs_vela
def test_what_stays_on_the_cpu_has_its_reason() -> None:
    """With the rows of ``tflite``, whose last nodes stay float."""
    found = vela.estimate(compiled(quantized(classifier(), "tflite")).files, find_profile("ethos-u55"))
    assert found is not None
    why = {node.op: node.why for node in found.nodes if node.device == "CPU"}
    assert "DataType Float32" in why["Softmax"]
    assert all(bool(node.why) == (node.device == "CPU") for node in found.nodes)
    left = sum(node.device == "CPU" for node in found.nodes)
    note = f"cycles and time are those of the NPU: {left} nodes on the CPU are not in them"
    assert found.notes == (note,)


@pytest.mark.needs_vela
def test_a_file_that_it_refuses() -> None:
    with pytest.raises(EngineError) as error:
        vela.estimate({"model.tflite": b"no model"}, find_profile("ethos-u55"))
    assert str(error.value).startswith("ethos-u-vela ")
    assert "rejects the file" in str(error.value)


def test_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vela, "find_spec", lambda name: None)
    with pytest.raises(MissingDependency) as error:
        vela.estimate({"model.tflite": b""}, find_profile("ethos-u55"))
    assert str(error.value).startswith(
        "ethos-u-vela is not installed, and estimating for an Ethos-U needs it: "
    )
