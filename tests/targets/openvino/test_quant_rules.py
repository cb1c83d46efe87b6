"""OpenVINO's rows: each is seen to run on integers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest
from edgekit_openvino.compile import compile_model
from edgekit_openvino.quant_rules import OPS, rules

from edgekit.compiler.quantize.placement.kernels import find_kernels
from edgekit.compiler.quantize.placement.qdq_graph import emit
from edgekit.compiler.quantize.placement.qdq_placement import place
from edgekit.target.installed_profiles import find_profile
from edgekit.target.profile import Fact, Profile
from edgekit.target.quant_rules import OpRule
from tests.fixtures.graphs import NEAREST, Graph, seen, with_weights
from tests.fixtures.quant_rules import uneven
from tests.targets.row_cases import model_for

RULES = rules(find_profile("openvino"))
pytestmark = pytest.mark.needs_openvino

LAYERS = {
    "Add": "Eltwise",
    "AveragePool": "Pooling",
    "Concat": "Concatenation",
    "Conv": "Convolution",
    "Flatten": "Reshape",
    "Gemm": "FullyConnected",
    "GlobalAveragePool": "Reduce",
    "MatMul": "FullyConnected",
    "MaxPool": "Pooling",
    "Mul": "Subgraph",
    "Resize": "Interpolate",
    "Slice": "StridedSlice",
    "Squeeze": "Reshape",
    "Unsqueeze": "Reshape",
}
"""ONNX operator -> what the CPU plugin calls it; the same where it is not here."""


def layers_run(model: ir.Model, folder: Path) -> Counter[tuple[str, str]]:
    """(layer, precision) of what the CPU plugin runs."""
    import openvino as ov

    artifact = compile_model(model, find_profile("openvino"), "fp32")
    for name, content in artifact.files.items():
        (folder / name).write_bytes(content)
    settings = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = ov.Core().compile_model(folder / "model.xml", "CPU", settings)

    def text(operation: Any, key: str) -> str:
        return str(operation.get_rt_info()[key].astype(str))

    operations = compiled.get_runtime_model().get_ordered_ops()
    return Counter((text(one, "layerType"), text(one, "runtimePrecision")) for one in operations)


def quantized(model: ir.Model) -> ir.Model:
    plan = with_weights(model, place(model, RULES, seen(model), NEAREST), RULES)
    return emit(model, plan, RULES)


@pytest.mark.parametrize("rule", [rule for rule in OPS if rule.op != "ConvTranspose"], ids=lambda r: r.op)
def test_a_row_runs_on_integers(rule: OpRule, tmp_path: Path) -> None:
    model = model_for(rule, tmp_path)
    assert rule in [kernel.rule for kernel in find_kernels(model, RULES)]
    found = layers_run(quantized(model), tmp_path)
    layer = LAYERS.get(rule.op, rule.op)
    assert found[layer, "u8"] + found[layer, "i8"] > 0, found
    for weighted in ("Convolution", "FullyConnected"):
        assert not found[weighted, "f32"], found


@pytest.mark.needs_ort
def test_silu_is_fused_and_read_by_the_next_conv(tmp_path: Path) -> None:
    g = Graph({"x": (1, 8, 8, 8)})
    first = g.conv("x", 8, 8)
    silu = g("Mul", first, g("Sigmoid", first))
    model = g.model(tmp_path, g.conv(silu, 8, 8))
    plan = place(model, RULES, seen(model), NEAREST)
    assert set(plan.activations) == {"x", silu}
    found = layers_run(quantized(model), tmp_path)
    assert found["Convolution", "u8"] == 2
    assert not any(layer in ("Swish", "Eltwise", "FakeQuantize") for layer, _ in found), found


@pytest.mark.needs_ort
def test_scales_of_channels_run_on_integers(tmp_path: Path) -> None:
    g = Graph({"x": (1, 4, 8, 8)})
    first, _, last = uneven(g)
    model = g.model(tmp_path, last)
    assert place(model, RULES, seen(model), NEAREST).activations[first].axis == 1
    found = layers_run(quantized(model), tmp_path)
    assert found["Convolution", "u8"] == 3, found


def test_products_that_saturate() -> None:
    assert RULES.pair_limit == 128
    facts = {"arch": Fact("x86_64", "", "s"), "isa": Fact(["avx512_vnni"], "", "s")}
    assert rules(Profile("p", "openvino", "t", facts)).pair_limit is None
    assert rules(Profile("p", "openvino", "t", {"arch": Fact("aarch64", "", "s")})).pair_limit is None
