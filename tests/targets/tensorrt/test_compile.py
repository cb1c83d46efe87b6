"""What the compiler writes, what it refuses, and what NVIDIA's compiler says of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from edgekit_tensorrt import acceptance
from edgekit_tensorrt import compile as tensorrt_compile
from edgekit_tensorrt.acceptance import Acceptance
from edgekit_tensorrt.compile import check_model, compile_model
from edgekit_tensorrt.device.golden import golden_feeds, golden_sha256, snr_db, thinned, why_wrong
from edgekit_tensorrt.quant_rules import rules

from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.compiler.quantize.observe.calibrate import observe
from edgekit.compiler.quantize.placement.float8_pairs import with_float8_pairs
from edgekit.errors import UnsupportedError
from edgekit.system.formats.npy import npy_bytes
from edgekit.target import Artifact
from edgekit.target.installed_profiles import find_profile
from edgekit.tensor_spec import TensorSpec
from tests.compiler.passes.meaning import model_of
from tests.conformance.case import Case
from tests.fixtures.models import SMALL_CNN, parse
from tests.fixtures.nms_plugin import detector
from tests.targets.engine_trial import EDGES, feeds, product, profile, put_down, with_shapes
from tests.targets.tensorrt.corpus import CONV, IMAGE, PAIR, SCALES, WEIGHTS

pytestmark = pytest.mark.needs_ort


def compiled(model: ir.Model, precision: str = "fp32") -> Artifact:
    canonical = model.clone()
    run_passes(canonical)
    return compile_model(canonical, profile("tensorrt"), precision)


def onnx_of(artifact: Artifact) -> onnx.ModelProto:
    model: onnx.ModelProto = onnx.ModelProto.FromString(artifact.files["model.onnx"])
    onnx.checker.check_model(model, full_check=True)
    return model


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_the_file_has_opset_19_and_the_source_models_signature(precision: str) -> None:
    model = with_shapes(SMALL_CNN)
    artifact = compiled(model, precision)
    written = onnx_of(artifact)
    assert (written.opset_import[0].version, written.ir_version) == (19, 9)
    inputs, outputs = signature(ir.from_proto(written))
    assert [str(spec) for spec in (*inputs, *outputs)] == [
        "image float32 1x3x16x16",
        "scores float32 1x4",
        "features float32 1x4x16x16",
    ]
    assert artifact.options == {"precision": precision, "prepared_on_device": True}
    assert set(artifact.files) == {"model.onnx", "trt.json", "golden-0.npy", "golden-1.npy"}
    settings = json.loads(bytes(artifact.files["trt.json"]))
    sha256 = settings.pop("golden_sha256")
    assert settings == {"floor": "10.3", "workspace_mb": 1024, "int8": [], "golden_integers": "coins"}
    kept_files = [bytes(artifact.files[f"golden-{number}.npy"]) for number in range(2)]
    assert sha256 == golden_sha256(golden_feeds(inputs), kept_files)


def test_odd_inputs_and_outputs_are_written() -> None:
    onnx_of(compiled(with_shapes(EDGES)))


def test_an_operator_of_opset_20_gets_opset_20() -> None:
    model = ir.from_proto(Case("gelu", "float[2,8] x", "y = Gelu(x)").model())
    assert onnx_of(compiled(model)).opset_import[0].version == 20


def test_float16_halves_the_weights() -> None:
    model = product()
    full, half = compiled(model), compiled(model, "fp16")
    assert len(half.files["model.onnx"]) < 0.6 * len(full.files["model.onnx"])


def test_int8_layers_are_named() -> None:
    model = ir.from_proto(Case("q", IMAGE, PAIR + CONV, f"{SCALES}, {WEIGHTS}", opset=19).model())
    artifact = compiled(model)
    assert json.loads(bytes(artifact.files["trt.json"]))["int8"] == ["Conv_3"]
    assert artifact.options["precision"] == "int8"


def test_all_nodes_that_have_no_form_are_named_at_once() -> None:
    body = "a = Det(x)\nb = Shrink(a)\nn = Exp(x)\ny = Det(n)\nz = Add(b, b)"
    case = Case("bad", "float[1,6,6] x", body, outputs="z, y")
    model = ir.from_proto(case.model())
    with pytest.raises(UnsupportedError) as found:
        compile_model(model, find_profile("jetson-orin-nano"), "fp32")
    assert str(found.value) == (
        "jetson-orin-nano can't run the model\n"
        "  EK1001  Det_0  Det  TensorRT 10.3 does not support it\n"
        "  EK1001  Det_3  Det  TensorRT 10.3 does not support it"
    )
    assert check_model(model, find_profile("jetson-orin-nano")) == found.value.findings


QKV = "float[1,2,5,4] q, float[1,2,6,4] k, float[1,2,6,3] v"
NEWER = [
    Case("attention", QKV, "y = Attention(q, k, v)"),
    Case("attention_scale", QKV, "y = Attention<scale=0.3>(q, k, v)"),
    Case("attention_mask", f"{QKV}, float[5,6] m", "y = Attention(q, k, v, m)"),
    Case(
        "group_norm",
        "float[1,6,4,3] x",
        "y = GroupNormalization<num_groups=3>(x, s, b)",
        "float[6] s, float[6] b",
        outputs="float[1,6,4,3] y",
    ),
    Case("attention_causal", QKV, "y = Attention<is_causal=1, softcap=2.0>(q, k, v)"),
    Case("rms_norm", "float[2,5,8] x", "y = RMSNormalization<epsilon=0.001>(x, s)", "float[8] s"),
    Case("rms_norm_axis", "float[2,5,8] x", "y = RMSNormalization<axis=1>(x, s)", "float[5,8] s"),
]


@pytest.mark.parametrize("case", NEWER, ids=lambda case: case.name)
def test_newer_operators_say_the_same_in_an_older_opset(case: Case) -> None:
    given = ir.from_proto(case.model())
    expected = Reference(given).run(feeds(given))
    written = onnx_of(compile_model(given, profile("tensorrt"), "fp32"))
    assert written.opset_import[0].version == 19
    older = ir.from_proto(written)
    got = Reference(older).run(feeds(given))
    np.testing.assert_allclose(got["y"], expected["y"], rtol=1e-5, atol=1e-6)
    assert [(v.name, v.shape) for v in older.graph.outputs] == [
        (v.name, v.shape) for v in given.graph.outputs
    ]


def test_what_no_old_opset_says_is_told() -> None:
    body = "y = DequantizeLinear<axis=1, block_size=2>(x, s)"
    model = ir.from_proto(Case("p", "int8[2,4] x", body, "float[2,2] s = {0.1, 0.2, 0.3, 0.4}").model())
    (finding,) = check_model(model, profile("tensorrt"))
    assert finding.message == "opset 20, the newest that TensorRT 10.3 reads, does not have this form of it"


def test_a_file_that_nvidias_compiler_refuses_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Acceptance("tensorrt-rtx 9", (("Conv_0", "Conv", "no kernel"),), frozenset())
    monkeypatch.setattr(tensorrt_compile, "compiler_version", lambda: "tensorrt-rtx 1")
    monkeypatch.setattr(tensorrt_compile, "ask_compiler", lambda content, nodes: answer)
    with pytest.raises(UnsupportedError, match=r"Conv_0 +Conv +tensorrt-rtx 9 rejects it: no kernel$"):
        compiled(with_shapes(SMALL_CNN))


DEFORM = Case(
    "deform",
    "float[1,1,3,3] x, float[1,8,2,2] o",
    "y = DeformConv<kernel_shape=[2,2]>(x, w, o)",
    "float[1,1,2,2] w",
    opset=19,
)


@pytest.mark.needs_tensorrt_compiler
def test_what_nvidias_compiler_has_no_plugin_for_is_not_judged_by_it() -> None:
    facts = compiled(ir.from_proto(DEFORM.model())).facts["acceptance"]
    assert facts["by"] is None
    assert facts["why"].endswith(" lacks TensorRT's plugin for DeformConv")


def test_a_refusal_beside_a_missing_plugin_counts() -> None:
    missing = ("d", "DeformConv", f"Assertion failed: creator: {acceptance.NO_PLUGIN}, ...")
    assert Acceptance("tensorrt-rtx 9", (missing,), frozenset()).unjudged == ("DeformConv",)
    assert Acceptance("tensorrt-rtx 9", (missing, ("c", "Conv", "no")), frozenset()).unjudged == ()
    assert Acceptance("tensorrt-rtx 9", (), frozenset()).unjudged == ()


def test_without_nvidias_compiler_the_evidence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorrt_compile, "compiler_version", lambda: None)
    assert compiled(with_shapes(SMALL_CNN)).facts["acceptance"] == {
        "by": None,
        "why": "NVIDIA's compiler is not installed here: pip install 'edgekit-sdk[tensorrt-check]'",
    }


def test_a_child_that_dies_is_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = tmp_path / "child.py"
    child.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")
    monkeypatch.setattr(acceptance, "CHILD", child)
    answer = acceptance.ask_compiler(b"")
    assert not answer.accepted
    assert answer.refusals == (("", "", "it exited with code -11: it printed no message"),)


def test_a_child_that_hangs_is_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = tmp_path / "child.py"
    child.write_text("import time\ntime.sleep(60)")
    monkeypatch.setattr(acceptance, "CHILD", child)
    monkeypatch.setattr(acceptance, "SECONDS_LIMIT", 0.5)
    assert acceptance.ask_compiler(b"").refusals == (("", "", "it did not end within 0.5 s"),)


def test_golden_inputs_are_the_same_everywhere() -> None:
    specs = [
        TensorSpec("x", "float32", (2, 2)),
        TensorSpec("i", "int64", (4,)),
        TensorSpec("b", "bool", (3,)),
    ]
    made = golden_feeds(specs)
    first = [0xE220A8, 0x6E789E, 0x06C45D, 0xF88BB8]  # of SplitMix64 seeded with 0, the upper 24 bits
    np.testing.assert_array_equal(made["x"].reshape(-1), np.array(first, np.float32) / np.float32(2**24))
    assert set(made["i"].tolist()) <= {0, 1}
    assert made["b"].dtype == bool


def test_the_golden_vector_tells_garbage(tmp_path: Path) -> None:
    model = with_shapes(SMALL_CNN)
    artifact = compiled(model)
    files = put_down(artifact, tmp_path)
    _, outputs = signature(model)
    answers = {
        spec.name: np.load(files[f"golden-{k}.npy"]).reshape(spec.shape) for k, spec in enumerate(outputs)
    }
    assert why_wrong(files, outputs, answers, "fp32") == ("", None)
    noisy = {name: array * np.float32(1.001) for name, array in answers.items()}
    assert why_wrong(files, outputs, noisy, "fp16")[0] == ""
    _, lowest = why_wrong(files, outputs, noisy, "int8")
    assert lowest == pytest.approx(60.0, abs=0.1)
    garbage = {name: np.roll(array, 1) for name, array in answers.items()}
    assert "fp32 needs 50 dB" in why_wrong(files, outputs, garbage, "fp32")[0]
    nothing = {name: array * np.float32("nan") for name, array in answers.items()}
    assert why_wrong(files, outputs, nothing, "int8")[0] == "output scores: SNR -1000.0 dB; int8 needs 10 dB"
    files["golden-0.npy"].write_bytes(npy_bytes(np.zeros(3, np.float32)))
    assert why_wrong(files, outputs, answers, "int8")[0].startswith(
        "the golden vector of scores cannot be read"
    )


def test_at_most_4096_values_are_kept() -> None:
    assert thinned(np.zeros((1, 100, 100))).size <= 4096
    assert thinned(np.zeros((2, 3))).size == 6
    assert thinned(np.zeros(())).size == 1
    assert snr_db(np.zeros(3), np.zeros(3)) is None
    assert snr_db(np.zeros(3), np.ones(3)) == -1000.0


MODELS: dict[str, dict[str, tuple[int, ...]]] = {
    "yolox_nano": {},
    "efficientnet_lite0": {"image": (1, 3, 224, 224)},
    "centerface": {"input.1": (1, 3, 480, 640)},
    "coco_ssd_mbv2_300": {},
    "ch_PP-OCRv4_det_infer": {"x": (1, 3, 320, 320)},
    "ch_PP-OCRv4_rec_infer": {"x": (1, 3, 48, 320)},
    "ch_ppocr_mobile_v2.0_cls_infer": {"x": (1, 3, 48, 192)},
}


@pytest.mark.needs_shared
@pytest.mark.needs_tensorrt_compiler
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("name", MODELS)
def test_nvidias_compiler_builds_real_models(shared: Path, name: str, precision: str) -> None:
    model = open_model(shared / "models" / f"{name}.onnx", MODELS[name])
    facts = compiled(model, precision).facts["acceptance"]
    assert facts["accepted"] is True
    assert facts["by"].startswith("tensorrt-rtx 1.")


CONV_AND_PRODUCT = """
<ir_version: 10, opset_import: ["": 23]>
both (float[1,16,8,8] x) => (float[1,16] y)
<float[32,16,3,3] w = {0}, float[32,16] v = {0}>
{
    [conv] c = Conv<pads=[1,1,1,1]>(x, w)
    r = Relu(c)
    p = GlobalAveragePool(r)
    f = Flatten(p)
    [product] y = MatMul(f, v)
}
"""


def in_float8() -> ir.Model:
    """The network above for Thor, with pairs."""
    model, random = parse(CONV_AND_PRODUCT), np.random.default_rng(0)
    for name, shape in (("w", (32, 16, 3, 3)), ("v", (32, 16))):
        model.graph.initializers[name].const_value = ir.tensor(
            random.standard_normal(shape).astype(np.float32), name=name
        )
    run_passes(model)
    observed = observe(model, [{"x": random.standard_normal((1, 16, 8, 8)).astype(np.float32)}])
    return with_float8_pairs(model, rules(find_profile("jetson-thor")), observed)[0]


@pytest.mark.needs_tensorrt_compiler
def test_nvidias_compiler_has_kernels_for_fp8() -> None:
    facts = compile_model(in_float8(), find_profile("jetson-thor"), "fp8").facts["acceptance"]
    assert (facts["accepted"], facts["fp8"], facts["not_fp8"]) == (True, "2 of 2 layers", [])


@pytest.mark.parametrize("name", ["jetson-orin-nano", "tensorrt"])
def test_float8_is_refused_for_a_chip_without_it(name: str) -> None:
    with pytest.raises(UnsupportedError) as refused:
        compile_model(in_float8(), find_profile(name), "int8")
    assert {finding.message for finding in refused.value.findings} == {"float8, which its chip does not have"}
    assert {finding.op for finding in refused.value.findings} == {"QuantizeLinear"}


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_its_own_nms_stays_as_it_is(precision: str) -> None:
    """TensorRT's parser reads EfficientNMS_TRT as a plugin; the golden vector is of the function of it."""
    model = detector("box_coding=0")
    made = compiled(model, precision)
    written = onnx.ModelProto.FromString(bytes(made.files["model.onnx"]))
    (node,) = written.graph.node
    assert (node.domain, node.op_type) == ("TRT", "EfficientNMS_TRT")
    assert {a.name for a in node.attribute} == set(model.graph[0].attributes)
    assert not written.functions


def test_a_plugin_without_a_reference_is_refused() -> None:
    model = model_of('g (float[1,9,4] x) => (float[1,9,4] y) { y = Normalize_TRT <plugin_version="1"> (x) }')
    (finding,) = check_model(model, find_profile("tensorrt"))
    assert finding.code == "EK1001"
    assert (
        finding.message
        == "ONNX Runtime, with whose outputs TensorRT's are compared, does not have this plugin"
    )
