"""Values stored about their own middle: zero point 0, and the answers of one that is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from edgekit.compiler.model.reference import Reference
from edgekit.compiler.model.rewriting import array_of
from edgekit.compiler.quantize.placement.qdq_graph import emit
from edgekit.compiler.quantize.placement.qdq_placement import place
from edgekit.compiler.quantize.recipe import QuantizationPlan
from edgekit.target.quant_rules import OpRule, Rules
from edgekit.tensor_spec import Array
from tests.fixtures.graphs import NEAREST, Graph, samples_for, seen, with_weights
from tests.fixtures.quant_rules import RULES

pytestmark = pytest.mark.needs_ort

GEMM = OpRule("Gemm", "own", "test", (0,), weight=1, weight_axis=0, bias=2, where=(("transB", (1,)),))
OPS = (*(row for row in RULES.ops if row.op != "Sigmoid"), OpRule("Flatten", "inputs", "test", (0,)), GEMM)
ZERO = replace(RULES, ops=OPS, symmetric=True, bias="float")
CENTRED = replace(ZERO, centred=True)
FREE = replace(ZERO, symmetric=False)
SHAPE = (1, 4, 6, 6)


def planned(model: ir.Model, rules: Rules) -> QuantizationPlan:
    return with_weights(model, place(model, rules, seen(model), NEAREST), rules)


def answers(model: ir.Model, plan: QuantizationPlan, rules: Rules) -> list[dict[str, Array]]:
    reference = Reference(emit(model, plan, rules))
    return [reference.run(sample) for sample in samples_for(model)]


def zero_points(model: ir.Model) -> set[int]:
    pairs = [node for node in model.graph if node.op_type == "QuantizeLinear"]
    return {int(array_of(node.inputs[2]).max()) for node in pairs}  # type: ignore[union-attr]


def pointwise(folder: Path) -> ir.Model:
    """All that may stand around a value less a constant: a move, a float reader, an output, two products."""
    g = Graph({"x": SHAPE})
    relu = g("Relu", g.conv("x", 4, 4, 3))
    pool = g("MaxPool", relu, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    both = g("Concat", relu, pool, axis=1)
    first, second = g.conv(both, 4, 8), g.conv(relu, 4, 4)
    cosine = g("Cos", pool)
    last = g.conv(g("Relu", first), 3, 4)
    flat = g("Flatten", g("Relu", second), axis=1)
    gemm = g("Gemm", flat, g.weights(5, 144), g.weights(5), transB=1)
    return g.model(folder, last, cosine, both, gemm)


def test_the_integers_are_those_of_a_free_zero_point(tmp_path: Path) -> None:
    model = pointwise(tmp_path)
    plan = planned(model, CENTRED)
    made = emit(model, plan, CENTRED)
    assert zero_points(made) == {0}
    moved = [a for a in plan.activations.values() if int(a.zero_point)]
    assert len(moved) >= 6
    given = answers(model, plan, CENTRED)
    for one, other in zip(given, answers(model, plan, FREE), strict=True):
        for name in one:
            np.testing.assert_allclose(one[name], other[name], rtol=0, atol=2e-5)


def test_its_steps_are_half_as_wide(tmp_path: Path) -> None:
    model = pointwise(tmp_path)
    steps = [planned(model, rules).activations["relu1"].scale for rules in (CENTRED, ZERO)]
    assert steps[0] == pytest.approx(steps[1] * 127 / 255)


def test_who_pads_reads_zero(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    relu = g("Relu", g.conv("x", 4, 4))
    padded = g.conv(relu, 4, 4, 3)
    sigmoid = g("Sigmoid", g.conv(relu, 4, 4))
    model = g.model(tmp_path, padded, g("Add", sigmoid, g.conv(sigmoid, 4, 4)))
    plan = planned(model, CENTRED)
    assert int(plan.activations["x"].zero_point) != 0
    assert int(plan.activations[relu].zero_point) == 0
    assert int(plan.activations[sigmoid].zero_point) != 0


def test_what_a_move_joins_with_a_reader_that_pads_is_not_moved(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    relu = g("Relu", g.conv("x", 4, 4))
    pool = g("MaxPool", relu, kernel_shape=[2, 2])
    model = g.model(tmp_path, g.conv(pool, 4, 4, 3), g.conv(relu, 4, 4))
    plan = planned(model, CENTRED)
    assert {int(plan.activations[name].zero_point) for name in (relu, pool)} == {0}


def test_without_being_asked_nothing_is_centred(tmp_path: Path) -> None:
    model = pointwise(tmp_path)
    assert {int(a.zero_point) for a in planned(model, ZERO).activations.values()} == {0}
