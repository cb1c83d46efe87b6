"""TFLite's rows: each is seen to become an integer op, and nothing is quantized twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from edgekit_tflite.compile import compile_model
from edgekit_tflite.quant_rules import OPS, rules

from edgekit.profile import find_profile
from edgekit.quantize.emit import emit
from edgekit.quantize.kernels import find_kernels
from edgekit.quantize.place import place
from edgekit.quantize.rewrites import rewritten
from edgekit.quantize.rules import OpRule
from tests.quantize.graphs import NEAREST, seen, with_weights
from tests.targets.row_cases import model_for

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
