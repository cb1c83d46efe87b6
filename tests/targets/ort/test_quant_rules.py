"""ONNX Runtime's rows: each is seen to become an integer kernel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from edgekit_ort.compile import compile_model
from edgekit_ort.quant_rules import OPS, rules

from edgekit.compiler.quantize.placement.kernels import find_kernels
from edgekit.compiler.quantize.placement.qdq_graph import emit
from edgekit.compiler.quantize.placement.qdq_placement import place
from edgekit.target.installed_profiles import find_profile
from edgekit.target.profile import Fact, Profile
from edgekit.target.quant_rules import OpRule
from tests.fixtures.graphs import NEAREST, Graph, samples_for, seen, with_weights
from tests.targets.row_cases import model_for

RULES = rules(find_profile("ort"))


def profile(**facts: object) -> Profile:
    return Profile("p", "ort", "t", {name: Fact(value, "", "s") for name, value in facts.items()})


def kernels_run(content: bytes, feeds: object, folder: Path) -> list[str]:
    """Names of the kernels that ONNX Runtime runs, by its own profile."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(folder / "profile")
    options.log_severity_level = 3
    options.add_session_config_entry("session.qdqisint8allowed", "1")  # as it is on ARM
    session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    session.run(None, feeds)
    events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    return [e["args"]["op_name"] for e in events if e.get("cat") == "Node" and "op_name" in e.get("args", {})]


@pytest.mark.needs_ort_after_1_23
@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
@pytest.mark.parametrize("rule", OPS, ids=lambda rule: rule.op)
def test_a_row_becomes_an_integer_kernel(rule: OpRule, arch: str, tmp_path: Path) -> None:
    """Nothing between the first pair and the last runs on floats: one Quantize, one Dequantize at most."""
    model, given = model_for(rule, tmp_path), rules(profile(arch=arch))
    found = find_kernels(model, given)
    assert rule in [kernel.rule for kernel in found]
    plan = with_weights(model, place(model, given, seen(model), NEAREST), given)
    artifact = compile_model(emit(model, plan, given), find_profile("ort"), "fp32")
    ops = kernels_run(bytes(artifact.files["model.onnx"]), samples_for(model)[0], tmp_path)
    assert ops.count("QuantizeLinear") == 1
    assert ops.count("DequantizeLinear") <= 1
    assert not {"Conv", "FusedConv", "Gemm", "MatMul", "FusedMatMul", "Clip", "Relu"} & set(ops)


@pytest.mark.needs_ort_after_1_23
@pytest.mark.parametrize("activation", ["Relu", "Clip"])
def test_an_activation_is_absorbed_by_the_pair(activation: str, tmp_path: Path) -> None:
    import numpy as np

    g = Graph({"x": (1, 8, 8, 8)})
    bounds = [np.array(bound, np.float32) for bound in (0, 0.7)] if activation == "Clip" else []
    middle = g(activation, g.conv("x", 8, 8), *bounds)
    model = g.model(tmp_path, g.conv(middle, 8, 8))
    plan = with_weights(model, place(model, RULES, seen(model), NEAREST), RULES)
    artifact = compile_model(emit(model, plan, RULES), find_profile("ort"), "fp32")
    ops = kernels_run(bytes(artifact.files["model.onnx"]), samples_for(model)[0], tmp_path)
    assert sorted(set(ops)) == ["DequantizeLinear", "QLinearConv", "QuantizeLinear", "Transpose"]


def test_activations_by_architecture() -> None:
    assert RULES.activations == "uint8"
    assert rules(profile(arch="AMD64")).activations == "uint8"
    assert rules(profile(arch="aarch64")).activations == "int8"
    assert rules(profile(arch="arm64")).activations == "int8"


def test_products_that_saturate() -> None:
    """VPMADDUBSW adds two products of uint8 and int8 in int16; VNNI and ARM add in int32."""
    assert RULES.pair_limit is not None
    assert RULES.pair_limit * 255 <= 2**15 - 1 < (RULES.pair_limit + 1) * 255
    assert rules(profile(arch="x86_64", isa=["avx2", "avx512_vnni"])).pair_limit is None
    assert rules(profile(arch="aarch64")).pair_limit is None
