"""TFLite's rows: each is seen to become an integer op, and nothing is quantized twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from edgekit_tflite.compile import compile_model
from edgekit_tflite.quant_rules import OPS, rules

from edgekit.compiler.evaluate.samples import load_samples
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.passes import run_passes
from edgekit.compiler.quantize.observe.calibrate import observe
from edgekit.compiler.quantize.placement.kernels import find_kernels
from edgekit.compiler.quantize.placement.qdq_graph import emit
from edgekit.compiler.quantize.placement.qdq_placement import place
from edgekit.compiler.quantize.placement.rewrites import rewritten
from edgekit.processing import load_card
from edgekit.target.installed_profiles import find_profile
from edgekit.target.quant_rules import OpRule
from tests.fixtures.graphs import NEAREST, seen, with_weights
from tests.targets.row_cases import model_for

ROOT = Path(__file__).resolve().parents[3]
PROFILE = find_profile("tflite")
RULES = rules(PROFILE)


@pytest.mark.needs_ort
@pytest.mark.parametrize("rule", OPS, ids=lambda rule: rule.op)
def test_a_row_becomes_an_integer_op(rule: OpRule, tmp_path: Path) -> None:
    """One QUANTIZE at the input, one DEQUANTIZE at the output, and integers between them."""
    model = model_for(rule, tmp_path)
    assert rule in [kernel.rule for kernel in find_kernels(model, RULES)]
    model, observations = rewritten(model, seen(model), RULES)
    plan = with_weights(model, place(model, RULES, observations, NEAREST), RULES)
    facts = compile_model(emit(model, plan, RULES), PROFILE, "fp32").facts
    # A Relu behind what is no kernel of its own is a QUANTIZE that saturates.
    assert facts["ops"]["QUANTIZE"] == (2 if rule.op == "Relu" else 1)
    assert facts["ops"]["DEQUANTIZE"] == 1
    assert facts["float_islands"] == []


@pytest.mark.needs_ort
@pytest.mark.needs_shared
def test_yolox_nano_is_quantized_once(shared: Path) -> None:
    """No requantization, floats only behind the last Conv; SiLU is split in the stem, and nowhere else."""
    model = open_model(shared / "models" / "yolox_nano.onnx")
    run_passes(model)
    card = load_card(ROOT / "samples" / "cards" / "yolox_nano.toml")
    photographs = str(shared / "data" / "coco128" / "train" / "images" / "*.jpg")
    samples = load_samples(photographs, signature(model)[0], card, limit=4)
    graph, observations = rewritten(model, observe(model, samples.arrays), RULES)
    convs = [[node.op_type for node in m.graph].count("Conv") for m in (model, graph)]
    assert convs[1] == convs[0] + 1
    plan = with_weights(graph, place(graph, RULES, observations, NEAREST), RULES)
    facts = compile_model(emit(graph, plan, RULES), PROFILE, "fp32").facts
    assert facts["requantizations"] == []
    assert facts["outside_xnnpack"] == []
    assert facts["ops"]["QUANTIZE"] == 1
    assert facts["ops"]["CONV_2D"] + facts["ops"]["DEPTHWISE_CONV_2D"] == convs[1]
    assert {island["op"] for island in facts["float_islands"]} <= {
        "Concat",
        "Reshape",
        "Sigmoid",
        "Transpose",
    }
