"""The rows of the NPU: each is compiled with the CPU off, in both widths, and computes what ONNX does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import onnx_ir as ir
import pytest
from edgekit_qnn.htp_types import with_htp_types
from edgekit_qnn.quant_rules import OPS, rules
from edgekit_qnn.run import PROVIDER, open_session, placement

from edgekit.compiler.model.onnx_file import save_model
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.quantize.placement.kernels import find_kernels
from edgekit.compiler.quantize.placement.qdq_graph import emit
from edgekit.compiler.quantize.placement.qdq_placement import place
from edgekit.target.installed_profiles import find_profile
from edgekit.target.quant_rules import OpRule
from tests.fixtures.graphs import NEAREST, Graph, samples_for, seen, with_weights
from tests.targets.row_cases import BETWEEN, Make, model_for

RULES = rules(find_profile("qnn"))
DOUBLED = np.array([1, 1, 2, 2], np.float32)
INT64 = np.int64
BOUNDS = [np.array(bound, np.float32) for bound in (-1, 1)]
OTHERS: Mapping[str, Make] = {
    "Max": lambda g, x: g("Max", x, g.conv(x, 8, 8)),
    "Min": lambda g, x: g("Min", x, g.conv(x, 8, 8)),
    "ReduceSum": lambda g, x: g("ReduceSum", x, np.array([3], INT64), keepdims=1),
    "ReduceMax": lambda g, x: g("ReduceMax", x, np.array([3], INT64), keepdims=1),
    "Clip": lambda g, x: g("Clip", g("MaxPool", x, kernel_shape=[1, 2]), BOUNDS[0], BOUNDS[1]),
    "Elu": lambda g, x: g("Elu", x),
    "HardSigmoid": lambda g, x: g("HardSigmoid", x),
    "Gelu": lambda g, x: g("Gelu", x),
    "Softplus": lambda g, x: g("Softplus", x),
    "Exp": lambda g, x: g("Exp", x),
    "GlobalMaxPool": lambda g, x: g("GlobalMaxPool", x),
    "Gather": lambda g, x: g("Gather", x, np.array([2, 0, 5, 1], INT64), axis=2),
    "MatMul": lambda g, x: g("MatMul", x, g.conv(x, 8, 8)),
    "Resize": lambda g, x: g("Resize", x, "", DOUBLED, mode="linear"),
}
"""The rows that no other target has."""


def small(rule: OpRule, folder: Path) -> ir.Model:
    alone = rule.op not in BETWEEN or (rule.op == "MatMul" and rule.weight is None)
    if rule.op == "Gemm" or not (alone or dict(rule.where).get("mode") == ("linear",)):
        return model_for(rule, folder)
    g = Graph({"x": (1, 8, 8, 8)}, opset=22)
    made = OTHERS[rule.op](g, g.conv("x", 8, 8))
    last = g("MatMul", g("Reshape", g("Add", made, made), np.array([-1, 8], INT64)), g.weights(8, 8))
    return g.model(folder, last)


@pytest.mark.needs_qnn
@pytest.mark.parametrize("bits", ["uint8", "uint16"])
@pytest.mark.parametrize("rule", OPS, ids=lambda rule: rule.op)
def test_a_row_is_taken_by_the_npu(rule: OpRule, bits: Literal["uint8", "uint16"], tmp_path: Path) -> None:
    model, own = small(rule, tmp_path), replace(RULES, activations=bits)
    assert rule in [kernel.rule for kernel in find_kernels(model, own)]
    plan = with_weights(model, place(model, own, seen(model), NEAREST), own)
    quantized = emit(model, plan, own)
    typed, float_nodes = with_htp_types(quantized)
    assert float_nodes == []
    session = open_session(save_model(typed), "73")
    assert list(placement(session)) == [PROVIDER]
    sample = samples_for(model)[0]
    for name, wanted in Reference(quantized).run(sample).items():
        (got,) = session.run([name], sample)
        assert np.linalg.norm(wanted - got) < 0.05 * np.linalg.norm(wanted)
