"""Pairs after a Concat: OpenVINO 2026.4.1 ends the process on some of them, and is not given those."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from edgekit_openvino import compile as openvino
from edgekit_openvino.fake_quantize import BEFORE, BETWEEN, with_fake_quantized_concats
from edgekit_openvino.run import openvino as loaded_openvino
from onnx import TensorProto, helper, numpy_helper

import edgekit
from edgekit.compiler.model.onnx_file import save_model
from edgekit.compiler.passes import run_passes
from edgekit.compiler.quantize.search.candidates import Candidates
from edgekit.compiler.quantize.search.measurement import BASELINE, DEFAULT, QUICK, CandidateConfig
from edgekit.compiler.sandbox.public import TRUSTED
from edgekit.system.progress import Stage
from edgekit.target.build_target import resolve
from edgekit.target.installed_profiles import find_profile
from edgekit.tensor_spec import Content
from tests.fixtures.quantization_data import quantization_data
from tests.targets.engine_trial import load, profile, same_as_reference, with_shapes

pytestmark = pytest.mark.needs_openvino

CHAIN = """
<ir_version: 8, opset_import: ["": 17]>
chain (float[1,1,2,2] a, float[1,1,2,2] b) => (float[1,2,2,2] y)
<float s = {0.05}, %(type)s zero = {%(zero)s}, float t = {0.0307}, %(type)s least = {%(least)s},
 float c = {1.5}, float high = {6}>
{
    x = %(first)s
    v = %(before)s
    [one] q = QuantizeLinear(v, s, zero)
    [two] d = DequantizeLinear(q, s, zero)
    w = %(between)s
    r = QuantizeLinear(w, t, least)
    e = DequantizeLinear(r, t, least)
    y = Neg(e)
}
"""
PLAIN = {
    "type": "uint8", "zero": 128, "least": 0, "first": "Concat<axis = 1>(a, b)", "before": "Identity(x)",
    "between": "Identity(d)",
}  # fmt: skip
OFF_TIES = (np.arange(-3, 5, dtype=np.float32).reshape(1, 2, 2, 2) * 7 + np.float32(0.3)) * np.float32(0.05)
"""Far from where two numbers are equally near."""
STEPS = {
    "Add": "Add({0}, c)",
    "Clip": "Clip({0}, c, high)",
    "Div": "Div({0}, c)",
    "Mul": "Mul(c, {0})",
    "Relu": "Relu({0})",
    "Sub": "Sub({0}, c)",
}
FATAL: list[dict[str, Any]] = [
    {},
    {"zero": 3},
    {"least": 100},
    {"type": "int8", "zero": 3, "least": -128},
    {"between": "Mul(c, d)", "before": "Clip(x, , high)"},
    {"zero": "128, 100", "type": "uint8"},
    *({"before": STEPS[op].format("x")} for op in BEFORE),
    *({"between": STEPS[op].format("d")} for op in BETWEEN),
]
"""Chains of which 2026.4.1 dies."""
HARMLESS: list[dict[str, Any]] = [
    {"zero": 0},
    {"first": "Max(a, a)", "before": "Expand(x, shape)"},
    {"before": "LeakyRelu(x)"},
    {"between": "Clip(d, , high)"},
    {"between": "Sigmoid(d)"},
    {"between": "MaxPool<kernel_shape = [1, 1]>(d)"},
    {"between": "Add(d, x)"},
]


def model_of(change: dict[str, Any]) -> ir.Model:
    """The canonical model: a target never gets an Identity."""
    model = with_shapes(text_of(change))
    run_passes(model)
    return model


def text_of(change: dict[str, Any]) -> str:
    text = CHAIN % {**PLAIN, **change}
    if "," in str(change.get("zero", "")):  # by channel
        text = text.replace("float s = {0.05}", "float[2] s = {0.05, 0.04}")
        text = text.replace("uint8 zero", "uint8[2] zero")
    if "shape" in change.get("before", ""):
        text = text.replace("float c = ", "int64[4] shape = {1, 2, 2, 2}, float c = ")
    return text


def run_all() -> None:
    """Compile and run all of them; called in a process of its own, which may die."""
    for number, change in enumerate([*FATAL, *HARMLESS]):
        print(number, change, flush=True)
        model = with_shapes(text_of(change))
        with tempfile.TemporaryDirectory() as folder:
            runner = load(model, "openvino", Path(folder))
            same_as_reference(model, runner, {"a": OFF_TIES[:, :1], "b": OFF_TIES[:, 1:]})
            runner.close()
    print("all ran", flush=True)


def test_the_engine_takes_each_and_computes_the_same() -> None:
    code = "from tests.targets.openvino.test_fake_quantize import run_all; run_all()"
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=root)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "all ran"), done.stdout + done.stderr


@pytest.mark.parametrize("change", FATAL)
def test_the_first_pair_is_one_operator(change: dict[str, Any]) -> None:
    model = model_of(change)
    written = with_fake_quantized_concats(model)
    ops = [node.op_type for node in written.graph]
    assert (ops.count("FakeQuantize"), ops.count("QuantizeLinear"), ops.count("DequantizeLinear")) == (
        1,
        1,
        1,
    )
    assert [node.op_type for node in model.graph].count("QuantizeLinear") == 2  # the source is not changed


@pytest.mark.parametrize("change", HARMLESS)
def test_others_are_left_alone(change: dict[str, Any]) -> None:
    model = model_of(change)
    assert with_fake_quantized_concats(model) is model


def fatal_chains(read: Any) -> list[str]:
    """Names of the first pairs of such chains in a model of OpenVINO's, as its reader writes pairs:
    FakeQuantize -> Convert -> Convert -> Subtract -> Multiply."""
    moving = ("Add", "Divide", "Maximum", "Minimum", "Multiply", "Relu", "Subtract")

    def varying(node: Any) -> list[Any]:
        before = [port.get_source_output().get_node() for port in node.inputs()]
        return [each for each in before if each.get_type_name() != "Constant" and varying_at_all(each)]

    def varying_at_all(node: Any) -> bool:
        return node.get_type_name() in ("Parameter",) or any(
            varying_at_all(port.get_source_output().get_node()) for port in node.inputs()
        )

    def read_by(node: Any) -> Iterator[Any]:
        for port in node.outputs():
            yield from (target.get_node() for target in port.get_target_inputs())

    def comes_from_concat(node: Any) -> bool:
        before = varying(node)
        if len(before) != 1:
            return False
        (one,) = before
        kind = one.get_type_name()
        return kind == "Concat" or (kind in moving and comes_from_concat(one))

    def is_quantized_again(node: Any, shifted: bool) -> bool:
        for after in read_by(node):
            kind = after.get_type_name()
            if kind == "FakeQuantize" and shifted:
                return True
            if kind in (*moving, "Convert") and is_quantized_again(after, shifted or kind == "Subtract"):
                return True
        return False

    return [
        node.get_friendly_name()
        for node in read.get_ordered_ops()
        if node.get_type_name() == "FakeQuantize"
        and any(after.get_type_name() == "Convert" for after in read_by(node))
        and comes_from_concat(node)
        and is_quantized_again(node, False)
    ]


def ir_of(files: Mapping[str, Content], folder: Path) -> Any:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return loaded_openvino().Core().read_model(folder / "model.xml")


@pytest.mark.parametrize("change", FATAL)
def test_the_scan_finds_them_in_what_is_not_rewritten(change: dict[str, Any], tmp_path: Path) -> None:
    model = model_of(change)
    assert fatal_chains(loaded_openvino().Core().read_model(save_model(model))) != []
    files = openvino.compile_model(model, profile("openvino"), "fp32").files
    assert fatal_chains(ir_of(files, tmp_path)) == []


def two_branches(folder: Path, size: int = 16) -> Path:
    """As CenterNet has it: two branches are joined, and a depthwise convolution reads them after a Relu."""
    rng = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def conv(x: str, name: str, channels: tuple[int, int], kernel: int, group: int = 1) -> str:
        shape = (channels[1], channels[0] // group, kernel, kernel)
        scale = (2 / (shape[1] * kernel * kernel)) ** 0.5
        weights.append(numpy_helper.from_array(rng.normal(0, scale, shape).astype(np.float32), f"{name}.w"))
        nodes.append(
            helper.make_node("Conv", [x, f"{name}.w"], [name], name, group=group, pads=[kernel // 2] * 4)
        )
        return name

    def relu(x: str) -> str:
        nodes.append(helper.make_node("Relu", [x], [f"{x}.relu"], f"{x}.relu"))
        return f"{x}.relu"

    x = relu(conv("image", "stem", (3, 16), 3))
    for number in range(2):
        one = conv(x, f"one{number}", (16, 16), 1)
        other = conv(relu(conv(x, f"first{number}", (16, 16), 3)), f"other{number}", (16, 16), 1)
        nodes.append(helper.make_node("Concat", [one, other], [f"both{number}"], f"both{number}", axis=1))
        x = relu(conv(relu(f"both{number}"), f"wide{number}", (32, 32), 5, 32))
        x = relu(conv(x, f"narrow{number}", (32, 16), 1))
    y = conv(x, "head", (16, 4), 1)
    graph = helper.make_graph(
        nodes, "branches",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, size, size])],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, [1, 4, size, size])],
        weights,
    )  # fmt: skip
    path = folder / "branches.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.needs_ort
def test_no_candidate_of_ours_has_one(tmp_path: Path) -> None:
    target = resolve(find_profile("openvino"))
    context = quantization_data(two_branches(tmp_path), 8).search_context
    assert target.rules is not None
    rewritten = 0
    with Candidates(context, target, target.rules, None, "") as made:
        assert len(made.placements) > 1
        for placement in made.placements:
            for recipe in (QUICK, BASELINE, DEFAULT):
                compiled = made.compile(CandidateConfig(placement, recipe))
                rewritten += with_fake_quantized_concats(compiled.model) is not compiled.model
                assert fatal_chains(ir_of(compiled.artifact.files, tmp_path)) == []
    assert rewritten > 0


@pytest.mark.needs_ort
def test_a_search_over_one_loses_no_candidate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a child process, as a user has it: its death would be a stage."""
    monkeypatch.delenv(TRUSTED, raising=False)
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    samples = [{"image": rng.normal(size=(1, 3, 32, 32)).astype(np.float32)} for _ in range(12)]
    stages: list[Stage] = []
    bundle = edgekit.build(
        two_branches(tmp_path, 32), targets=["openvino", "ort"], precision="auto", samples=samples,
        progress=stages.append,
    )  # fmt: skip
    assert "restarted" not in [stage.name for stage in stages]
    searched = [v.evidence["search"]["tried"] for v in bundle.variants if "search" in v.evidence]
    assert len(searched) == 2
    assert not any("its process" in each["lost"] for tried in searched for each in tried)
