"""What the compiler writes: the same bytes each time, packages that coremltools reads, every refusal."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from edgekit_coreml import compile as coreml
from edgekit_coreml.package import MANIFEST, SPECIFICATION, WEIGHTS
from edgekit_coreml.run import open_runner
from edgekit_coreml.vendor import coremltools
from onnx import helper

import edgekit
from edgekit.compiler.evaluate.verify import write_files
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.model.shape_inference import infer_shapes
from edgekit.compiler.passes import run_passes
from edgekit.errors import MissingDependency, UnsupportedError, install_line
from edgekit.target import Artifact
from edgekit.target.installed_profiles import find_profile
from edgekit.target.profile import Profile
from edgekit.tensor_spec import TensorSpec
from tests.compiler.passes.meaning import model_of, snr_db
from tests.fixtures.models import QUANTIZED, SMALL_CNN, write
from tests.targets.engine_trial import EDGES, profile, with_shapes

pytestmark = [pytest.mark.needs_coreml, pytest.mark.needs_ort]

COREML = "coreml"


def artifact(text: str, folder: Path, precision: str = "fp32", device: str = COREML) -> Artifact:
    model = open_model(write(folder, text))
    run_passes(model)
    return coreml.compile_model(model, find_profile(device), precision)


def kinds(made: Artifact) -> Mapping[str, int]:
    found: Mapping[str, int] = made.facts["ops"]
    return found


def test_the_files_of_a_package(tmp_path: Path) -> None:
    made = artifact(SMALL_CNN, tmp_path)
    assert sorted(made.files) == sorted([MANIFEST, SPECIFICATION, WEIGHTS])
    manifest = json.loads(bytes(made.files[MANIFEST]))
    root = manifest["itemInfoEntries"][manifest["rootModelIdentifier"]]
    assert root["path"] == "com.apple.CoreML/model.mlmodel"
    assert kinds(made) == {"conv": 1, "reduce_mean": 1, "relu": 1, "reshape": 1, "softmax": 1}


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_coremltools_reads_it(precision: str, tmp_path: Path) -> None:
    """Its reader runs Apple's type inference over every operator."""
    made = artifact(SMALL_CNN, tmp_path, precision)
    write_files(made, tmp_path)
    tools = coremltools()
    from coremltools.converters.mil.frontend.milproto.load import load

    package = tools.models.MLModel(str(tmp_path / "model.mlpackage"), skip_model_load=True)
    program = load(package.get_spec(), specification_version=7, file_weights_dir=package.weights_dir)
    assert [op.op_type for op in program.functions["main"].operations if op.op_type == "conv"] == ["conv"]
    description = package.get_spec().description
    assert [feature.name for feature in description.input] == ["image"]
    assert [feature.name for feature in description.output] == ["scores", "features"]


def test_half_precision_is_the_types_of_the_program(tmp_path: Path) -> None:
    full, half = (artifact(SMALL_CNN, tmp_path, p) for p in ("fp32", "fp16"))
    assert kinds(half)["cast"] == 3  # one input, two outputs
    assert "cast" not in kinds(full)
    assert len(half.files[WEIGHTS]) < len(full.files[WEIGHTS])


def test_interface_of_scalars_integers_and_booleans() -> None:
    made = coreml.compile_model(with_shapes(EDGES), profile(COREML), "fp32")
    described = {entry["name"]: (entry["dtype"], entry["shape"]) for entry in made.options["inputs"]}
    assert described == {
        "unused": ("float32", [3]),
        "x": ("float32", [1, 4]),
        "k": ("int32", [3]),
        "s": ("float32", [1]),
        "flags": ("int32", [2]),
    }


UNSUPPORTED = """
<ir_version: 10, opset_import: ["": 23]>
bad (float[1,4] x) => (float[1,4] y, float[1,4] z)
{
    [gone] d = Cast<to=16>(x)
    [back] y = Cast<to=1>(d)
    [bits] f = RandomUniformLike(x)
    [sum] z = Add(x, f)
}
"""


def test_every_reason_at_once() -> None:
    model = with_shapes(UNSUPPORTED)
    with pytest.raises(UnsupportedError) as caught:
        coreml.compile_model(model, profile(COREML), "fp32")
    assert [f.node for f in caught.value.findings] == ["gone", "bits"]
    assert "coreml does not support RandomUniformLike at opset 23" in str(caught.value)
    assert [f.message for f in coreml.check_model(model, profile(COREML))] == [
        f.message for f in caught.value.findings
    ]


def test_a_reduction_that_onnx_does_not_have() -> None:
    model = with_shapes("""<ir_version: 10, opset_import: ["": 23]>
        g (float[4] x, int64[2] i, float[2] u) => (float[4] y)
        { y = ScatterElements<reduction="mean">(x, i, u) }""")
    (found,) = coreml.check_model(model, profile(COREML))
    assert (found.node, found.message) == ("y", "reduction 'mean' is not supported by Core ML")


def test_a_gelu_that_core_ml_does_not_have_is_expanded() -> None:
    """By ONNX's function any text but ``tanh`` is the exact one; Core ML's operator has no third mode."""
    model = with_shapes("""<ir_version: 10, opset_import: ["": 23]>
        g (float[4] x) => (float[4] y) { y = Gelu<approximate="sigmoid">(x) }""")
    assert coreml.check_model(model, profile(COREML)) == []


def test_an_output_of_another_shape_than_is_declared() -> None:
    text = '<ir_version: 10, opset_import: ["": 23]> g (float[2,3] x) => (float[2,3] y) { y = Transpose(x) }'
    (found,) = coreml.check_model(ir.from_onnx_text(text), profile(COREML))
    assert found.message == "y is declared as (2, 3), but the node returns (3, 2)"


def test_an_input_without_elements() -> None:
    model = with_shapes(
        '<ir_version: 10, opset_import: ["": 23]> g (float[0,3] x) => (float[0,3] y) { y = Relu(x) }'
    )
    with pytest.raises(UnsupportedError, match="x is empty; Core ML does not support empty arrays"):
        coreml.compile_model(model, profile(COREML), "fp32")


def test_the_pip_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "coremltools", None)
    with pytest.raises(MissingDependency) as caught:
        artifact(SMALL_CNN, tmp_path)
    assert str(caught.value) == (
        f"coremltools is not installed, and writing an .mlpackage needs it: {install_line('coreml')}"
    )


def test_a_check_of_all_targets_goes_on_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "coremltools", None)
    found = edgekit.check(write(tmp_path, SMALL_CNN))
    (note,) = [finding for finding in found if finding.target == COREML]
    assert (note.code, note.severity) == ("EK1104", "note")
    assert note.message.startswith("not checked: coremltools is not installed")
    with pytest.raises(MissingDependency):
        edgekit.check(tmp_path / "model.onnx", [COREML])


def test_pairs_and_integer_weights(tmp_path: Path) -> None:
    made = artifact(QUANTIZED, tmp_path, "int8")
    assert kinds(made) == {
        "cast": 2, "constexpr_affine_dequantize": 1, "conv": 1, "dequantize": 1, "quantize": 1, "relu": 1,
    }  # fmt: skip
    assert made.facts["deployment_target"] == "iOS 17"
    assert made.options["precision"] == "int8"


def test_a_newer_ios_is_said(tmp_path: Path) -> None:
    model = open_model(write(tmp_path, QUANTIZED))
    run_passes(model)
    notes = [f for f in coreml.check_model(model, profile(COREML)) if f.code == "EK1103"]
    assert [note.message for note in notes] == ["quantize and dequantize need iOS 17; coreml is iOS 16"]
    newer = [f for f in coreml.check_model(model, find_profile("iphone-15-pro")) if f.code == "EK1103"]
    assert newer == []


@pytest.mark.parametrize(
    ("device", "ios"),
    [
        ("ios-15", "iOS 15"),
        ("coreml", "iOS 16"),
        ("iphone-12", "iOS 18"),
        ("mac-m2", "iOS 18"),
        ("ios-26", "iOS 26"),
    ],
)
def test_built_for_the_systems_of_the_profile(device: str, ios: str, tmp_path: Path) -> None:
    made = artifact(SMALL_CNN, tmp_path, device=device)
    assert made.facts["deployment_target"] == ios
    write_files(made, tmp_path)
    package = coremltools().models.MLModel(str(tmp_path / "model.mlpackage"), skip_model_load=True)
    newest = {"iOS 15": 6, "iOS 16": 7, "iOS 18": 9, "iOS 26": 10}
    assert package.get_spec().specificationVersion == newest[ios]


def test_a_profile_without_a_system_is_the_oldest(tmp_path: Path) -> None:
    model = open_model(write(tmp_path, SMALL_CNN))
    run_passes(model)
    bare = Profile("bare", "coreml", "bare", {})
    assert coreml.compile_model(model, bare, "fp32").facts["deployment_target"] == "iOS 15"


OVERFLOWING = """
<ir_version: 10, opset_import: ["": 23]>
far (float[1,4] x) => (float[1,4] y, float[1,4] z)
<float big = {1e6}, float[1,4] mask = {0, -1e30, 0, -1e30}>
{
    [huge] y = Mul(x, big)
    [masked] m = Add(x, mask)
    [softmax] z = Softmax(m)
}
"""


def test_where_float16_does_not_do(tmp_path: Path) -> None:
    model = open_model(write(tmp_path, OVERFLOWING))
    run_passes(model)
    made = coreml.compile_model(model, profile(COREML), "fp16")
    why = "its constant big contains 1e+06, but float16 ends at 65504"
    assert made.facts["float32_nodes"] == [{"node": "huge", "why": why}]
    warned = [f for f in coreml.check_model(model, profile(COREML)) if f.node == "huge"]
    assert [f.message for f in warned] == [f"it computes in float32, off the Neural Engine: {why}"]


def test_eligible_at_risk_or_not(tmp_path: Path) -> None:
    full, half = (artifact(SMALL_CNN, tmp_path, p) for p in ("fp32", "fp16"))
    assert full.facts["neural_engine"] == {"not": 5}
    assert half.facts["neural_engine"] == {"eligible": 5}


def test_who_says_that_a_node_may_leave_the_neural_engine(tmp_path: Path) -> None:
    text = "g (float[2,3,4,4] x) => (float[2,3,4,4] y) { y = Relu (x) }"
    model = open_model(write(tmp_path, f'<ir_version: 10, opset_import: ["": 23]> {text}'))
    run_passes(model)
    (warned,) = coreml.check_model(model, profile(COREML))
    assert warned.message == (
        "perhaps off the Neural Engine: a batch of more than one has given wrong answers"
        " (one who measured says so, https://github.com/apple/coremltools/issues/1229)"
    )


def test_names_travel_in_the_package(tmp_path: Path) -> None:
    made = artifact(SMALL_CNN.replace("convolved", "a_b"), tmp_path)
    write_files(made, tmp_path)
    tools = coremltools()
    package = tools.models.MLModel(str(tmp_path / "model.mlpackage"), skip_model_load=True)
    names = json.loads(package.user_defined_metadata["edgekit.names"])
    assert names["features"] == "features"


ONES = "{" + ",".join(["1"] * 64) + "}"
TWICE = f"""
<ir_version: 10, opset_import: ["": 23]>
twice (float[1,8] x) => (float[1,8] y) <float[8,8] w = {ONES}, float[8,8] v = {ONES}>
{{ a = MatMul(x, w)  y = MatMul(a, v) }}
"""


def test_constants_are_stored_once() -> None:
    made = coreml.compile_model(with_shapes(TWICE), profile(COREML), "fp32")
    assert len(made.files[WEIGHTS]) < 2 * 8 * 8 * np.dtype(np.float32).itemsize


def test_int8_arrays_from_ios_26_on(tmp_path: Path) -> None:
    text = """
    <ir_version: 10, opset_import: ["": 23]>
    narrow (int8[1,4] x) => (int8[1,4] y)
    <float s = {0.5}, int8 z = {0}>
    {
        d = DequantizeLinear(x, s, z)
        r = Relu(d)
        y = QuantizeLinear(r, s, z)
    }
    """
    for device, dtype, stored in (("ios-26", "int8", 131080), ("iphone-12", "int32", 131104)):
        made = artifact(text, tmp_path, "int8", device)
        assert [e["dtype"] for e in (*made.options["inputs"], *made.options["outputs"])] == [dtype] * 2
        files = write_files(made, tmp_path / device)
        spec = coremltools().utils.load_spec(str(tmp_path / device / "model.mlpackage"))
        for feature in (*spec.description.input, *spec.description.output):
            assert feature.type.multiArrayType.dataType == stored
        specs = [TensorSpec(name, "int8", (1, 4)) for name in "xy"]
        runner = open_runner(files, specs[:1], specs[1:], made.options, 1)
        assert runner.run({"x": np.array([[-3, 0, 5, 127]], np.int8)})["y"].tolist() == [[0, 0, 5, 127]]


@pytest.mark.parametrize("kind", ["int4", "uint4", "int8"])
@pytest.mark.parametrize(
    ("device", "constexpr"), [("iphone-12", "constexpr_blockwise_shift_scale"), ("coreml", "")]
)
def test_blocks_of_weights_stay_as_they_are_from_ios_18_on(
    kind: str, device: str, constexpr: str, tmp_path: Path
) -> None:
    """Before, they are floats; what is answered is the same."""
    rng, zero = np.random.default_rng(0), 3 if kind == "uint4" else 0
    weights = rng.integers(0 if kind == "uint4" else -8, 8, (64, 32))
    scales = rng.uniform(0.01, 0.1, (4, 32)).astype(np.float32)
    dtype = getattr(ml_dtypes, kind, np.int8)
    model = model_of(
        "g (float[1,64] x) => (float[1,32] y) { d = DequantizeLinear<axis=0, block_size=16>(w, s, z) "
        "y = MatMul(x, d) }",
        w=weights.astype(dtype), s=scales, z=np.full((4, 32), zero).astype(dtype),
    )  # fmt: skip
    made = coreml.compile_model(model, find_profile(device), "fp32")
    assert kinds(made).get("constexpr_blockwise_shift_scale", 0) == bool(constexpr)
    files = write_files(made, tmp_path / device)
    specs = [TensorSpec("x", "float32", (1, 64)), TensorSpec("y", "float32", (1, 32))]
    runner = open_runner(files, specs[:1], specs[1:], made.options, 1)
    x = rng.standard_normal((1, 64)).astype(np.float32)
    real = (weights - zero) * np.repeat(scales, 16, 0)
    np.testing.assert_allclose(runner.run({"x": x})["y"], x @ real, rtol=1e-4, atol=1e-4)
    coremltools().models.MLModel(str(tmp_path / device / "model.mlpackage"), skip_model_load=True)
    if constexpr:
        (warned,) = [f for f in coreml.check_model(model, find_profile(device)) if f.op == "MIL linear"]
        assert warned.message.startswith("off the Neural Engine: a scale for each block of a weight")
        packed = 64 * 32 * (8 if kind == "int8" else 4) // 8
        assert len(made.files[WEIGHTS]) < packed + 4 * 32 * 4 + 1024


@pytest.mark.parametrize(
    "names", [("out:0", "out_0", "Out_0"), ("out_0", "out:0", "out-0"), ("a_1", "a", "a:1")]
)
def test_outputs_whose_names_differ_by_a_sign(names: tuple[str, str, str], tmp_path: Path) -> None:
    """Core ML's names have letters, digits and underscores only."""
    nodes = [
        helper.make_node(op, ["x"], [name]) for op, name in zip(("Neg", "Abs", "Relu"), names, strict=True)
    ]
    outputs = [helper.make_tensor_value_info(name, 1, [3]) for name in names]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, [3])], outputs)
    model = ir.from_proto(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    )
    inputs, sinks = signature(model)
    made = coreml.compile_model(model, find_profile(COREML), "fp32")
    x = np.array([-2, 1, 3], np.float32)
    got = open_runner(write_files(made, tmp_path), inputs, sinks, made.options, 1).run({"x": x})
    for name, want in zip(names, (-x, np.abs(x), np.maximum(x, 0)), strict=True):
        np.testing.assert_array_equal(got[name], want)


HALF_BETWEEN = """
<ir_version: 8, opset_import: ["": 17]>
half (float[1,3,8,8] x) => (float[1,4,8,8] y) {
    h = Cast<to = 10>(x) c = Conv<pads = [1,1,1,1]>(h, w) m = ReduceMean<axes = [1]>(c) s = Sub(c, m)
    f = Cast<to = 1>(s) p = Softplus(f) g = Cast<to = 10>(p) q = Mul(g, c) y = Cast<to = 1>(q)
}
"""


def test_a_float16_model_with_float32_inputs_and_outputs(tmp_path: Path) -> None:
    """Computed in float32, it has no more roundings than the reference."""
    rng = np.random.default_rng(3)
    model = ir.from_onnx_text(
        HALF_BETWEEN,
        initializers=[ir.tensor((rng.standard_normal((4, 3, 3, 3)) / 5).astype(np.float16), name="w")],
    )
    infer_shapes(model)
    want = Reference(model).run(feeds := {"x": rng.standard_normal((1, 3, 8, 8)).astype(np.float32)})["y"]
    inputs, sinks = signature(model)
    run_passes(model)
    made = coreml.compile_model(model, find_profile(COREML), "fp32")
    got = open_runner(write_files(made, tmp_path), inputs, sinks, made.options, 1).run(feeds)["y"]
    assert snr_db(want, got) > 100
