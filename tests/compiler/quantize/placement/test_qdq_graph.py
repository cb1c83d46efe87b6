"""Emission: the Q/DQ graph is valid, keeps the signature, and computes what integers would."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.onnx_file import save_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.model.rewriting import array_of
from edgekit.compiler.quantize.numerics import affine, dequantize, quantize
from edgekit.compiler.quantize.placement.qdq_graph import emit
from edgekit.compiler.quantize.placement.qdq_placement import place
from edgekit.compiler.quantize.recipe import Affine, QuantizationPlan, QuantizedWeights
from edgekit.target.quant_rules import ChannelNoise, OpRule, Rules
from edgekit.tensor_spec import Array
from tests.fixtures.graphs import NEAREST, Graph, samples_for, seen, with_weights
from tests.fixtures.quant_rules import FLOATING, RULES, SHAPE, uneven

pytestmark = pytest.mark.needs_ort

INT32 = replace(RULES, bias="int32")


def emitted(model: ir.Model, rules: Rules = INT32) -> tuple[ir.Model, QuantizationPlan]:
    plan = with_weights(model, place(model, rules, seen(model), NEAREST), rules)
    return emit(model, plan, rules), plan


def small(folder: Path) -> ir.Model:
    g = Graph({"x": SHAPE})
    conv = g.conv("x", 4, 4, 3)
    relu = g("Relu", conv)
    pool = g("MaxPool", relu, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    both = g("Concat", relu, pool, axis=1)
    gated = g("Mul", both, g("Sigmoid", both))
    head = g.conv(gated, 3, 8)
    return g.model(folder, g("Sigmoid", head), head)


@pytest.mark.parametrize("rules", [INT32, RULES, replace(INT32, activations="uint8"), FLOATING])
def test_it_is_valid_and_every_value_is_typed(tmp_path: Path, rules: Rules) -> None:
    model = small(tmp_path)
    before = save_model(model)
    made, _ = emitted(model, rules)
    onnx.checker.check_model(onnx.ModelProto.FromString(save_model(made)), full_check=True)
    for node in made.graph:
        for value in node.outputs:
            assert value.dtype is not None
            assert static_dims(value) is not None
    assert signature(made) == signature(model)
    assert save_model(model) == before, "the float model was changed"


def test_float_weights_are_gone_and_small_integers_in_their_place(tmp_path: Path) -> None:
    made, _ = emitted(small(tmp_path))
    stored = [value for value in made.graph.initializers.values() if np.prod(static_dims(value) or ()) > 8]
    kinds = {str(value.dtype) for value in stored}
    assert kinds == {"INT8"}
    node = next(n for n in made.graph if n.op_type == "Conv")
    weight = node.inputs[1].producer()  # type: ignore[union-attr]
    assert weight is not None
    assert weight.op_type == "DequantizeLinear"
    assert weight.attributes["axis"].as_int() == 0


def test_pairs_are_where_the_plan_has_them(tmp_path: Path) -> None:
    model = small(tmp_path)
    made, plan = emitted(model)
    pairs = [str(n.inputs[0].name) for n in made.graph if n.op_type == "QuantizeLinear"]  # type: ignore[union-attr]
    head = str(model.graph.outputs[1].name)
    assert sorted(pairs) == sorted(name if name != head else f"{head}/float" for name in plan.activations)


def test_who_reads_what(tmp_path: Path) -> None:
    """Floats behind a float producer are read as they are; behind integers there is only what was stored."""
    g = Graph({"x": SHAPE})
    conv = g.conv("x", 4, 4)
    soft = g("Softmax", conv)
    last = g.conv(soft, 2, 4)
    beside = g("Exp", soft)
    made, _ = emitted(g.model(tmp_path, last, beside))
    nodes = {node.op_type: node for node in made.graph}
    assert str(nodes["Softmax"].inputs[0].name) == f"{conv}/dequantized"  # type: ignore[union-attr]
    assert str(nodes["Exp"].inputs[0].name) == soft  # type: ignore[union-attr]


def test_without_rounding_it_is_the_float_model(tmp_path: Path) -> None:
    """16 bits for activations, weights that are integers times a scale: only the places of pairs are left."""
    g = Graph({"x": SHAPE})
    rng = np.random.default_rng(5)
    weights = rng.integers(-127, 128, (4, 4, 3, 3)).astype(np.float32) / 512
    weights[:, 0, 0, 0] = 127 / 512
    conv = g("Conv", "x", weights, g.weights(4), pads=[1, 1, 1, 1])
    relu = g("Relu", conv)
    head = weights[:2, :, :1, :1].copy()
    head[:, 0] = 127 / 512
    last = g("Conv", g("Concat", relu, g("Add", relu, relu), axis=1), np.concatenate([head, head], 1))
    model = g.model(tmp_path, last)
    made, _ = emitted(model, replace(INT32, activations="int16"))
    x = samples_for(model)[0]
    exact, ours = Reference(model).run(x)[last], Reference(made).run(x)[last]
    assert np.abs(ours - exact).max() < 1e-3 * np.abs(exact).max()


def accumulated(stored: Array, by: Affine, weights: QuantizedWeights, bias: Array) -> Array:
    """An integer 1x1 Conv of [1, C, H, W]: int64 sums, int32 bias, one rounding at the end."""
    steps = stored.astype(np.int64) - int(by.zero_point)
    sums = np.einsum("oc,nchw->nohw", weights.stored[:, :, 0, 0].astype(np.int64), steps)
    unit = (by.scale * weights.affine.scale).astype(np.float64)
    units = np.rint(bias / unit).astype(np.int64)
    result: Array = (sums + units.reshape(1, -1, 1, 1)) * unit.reshape(1, -1, 1, 1)
    return result


@pytest.mark.parametrize("activations", ["int8", "uint8"])
def test_a_conv_is_integer_arithmetic(tmp_path: Path, activations: str) -> None:
    g = Graph({"x": SHAPE})
    conv = g.conv("x", 4, 4)
    model = g.model(tmp_path, conv)
    made, plan = emitted(model, replace(INT32, activations=activations))  # type: ignore[arg-type]
    weights = plan.weights[conv]
    x = samples_for(model)[0]["x"]
    assert weights.bias is not None
    real = accumulated(quantize(x, plan.activations["x"]), plan.activations["x"], weights, weights.bias)
    expected = dequantize(quantize(real.astype(np.float32), plan.activations[conv]), plan.activations[conv])
    found = Reference(made).run({"x": x})[conv]
    # A sum that lies between two steps may be rounded either way: it is summed up in float32 there.
    step = float(plan.activations[conv].scale)
    assert np.abs(found - expected).max() <= 1.001 * step
    assert np.mean(found != expected) < 0.005


@pytest.mark.parametrize("op", ["Add", "Mul"])
def test_elementwise_is_integer_arithmetic(tmp_path: Path, op: str) -> None:
    g = Graph({"x": SHAPE, "y": SHAPE})
    total = g(op, *(g("MaxPool", name, kernel_shape=[1, 1]) for name in ("x", "y")))
    last = g.conv(g("MaxPool", total, kernel_shape=[1, 1]), 2, 4)
    model = g.model(tmp_path, last)
    made, plan = emitted(model)
    x = samples_for(model)[0]
    reals = [dequantize(quantize(x[n], plan.activations[n]), plan.activations[n]) for n in ("x", "y")]
    value = reals[0] + reals[1] if op == "Add" else reals[0] * reals[1]
    expected = quantize(value, plan.activations[total])
    name = next(str(n.outputs[0].name) for n in made.graph if n.inputs[0].name == total)  # type: ignore[union-attr]
    assert np.array_equal(Reference(made, intermediate=[name]).run(x)[name], expected)


def test_an_output_made_of_integers_keeps_its_name(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    conv = g.conv("x", 4, 4)
    last = g.conv(conv, 2, 4)
    model = g.model(tmp_path, conv, last)
    made, plan = emitted(model)
    assert [str(value.name) for value in made.graph.outputs] == [conv, last]
    result = Reference(made).run(samples_for(model)[0])
    for name in (conv, last):
        steps = result[name] / plan.activations[name].scale
        assert np.abs(steps - np.rint(steps)).max() < 1e-3, f"{name} is not what was stored"


def test_an_output_that_integers_read_too_stays_float(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    soft = g("Softmax", g.conv("x", 4, 4))
    last = g.conv(soft, 2, 4)
    model = g.model(tmp_path, soft, last)
    made, plan = emitted(model)
    assert soft in plan.activations
    assert made.graph.outputs[0].producer().op_type == "Softmax"  # type: ignore[union-attr]


def test_scales_of_channels_are_written_with_their_axis(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    first, _, last = uneven(g)
    model = g.model(tmp_path, last)
    rules = replace(FLOATING, bias="int32", channel_noise=ChannelNoise(0.05, "scales", "test"))
    made, _ = emitted(model, rules)
    node = next(n for n in made.graph if n.op_type == "QuantizeLinear" and n.inputs[0].name == first)  # type: ignore[union-attr]
    assert node.attributes["axis"].as_int() == 1
    exact, ours = (Reference(m).run(samples_for(model)[0])[last] for m in (model, made))
    assert np.abs(ours - exact).max() < 0.05 * np.abs(exact).max()


def test_gemm_takes_a_bias_of_any_shape(tmp_path: Path) -> None:
    g = Graph({"x": (2, 6)})
    out = g("Gemm", "x", g.weights(6, 4), g.weights(1, 4))
    model = g.model(tmp_path, out)
    row = OpRule("Gemm", "own", "test", (0,), 1, 1, bias=2)
    made, _ = emitted(model, replace(INT32, ops=(row,)))
    x = samples_for(model)[0]
    exact, ours = Reference(model).run(x)[out], Reference(made).run(x)[out]
    assert np.abs(ours - exact).max() < 0.03 * np.abs(exact).max()
    stored = [v for v in made.graph.initializers.values() if v.dtype == ir.DataType.INT32 and v.const_value]
    assert (1, 4) in [static_dims(value) for value in stored]


def test_the_bias_of_a_grouped_transposed_conv_has_its_groups_scales(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    weights = g.weights(4, 2, 2, 2) * np.array([1, 40], np.float32).reshape(1, 2, 1, 1)
    bias = np.array([1, 30, -1, -30], np.float32)
    out = g("ConvTranspose", "x", weights, bias, group=2, strides=[2, 2])
    model = g.model(tmp_path, out)
    row = OpRule("ConvTranspose", "asked", "test", (0,), 1, 1, bias=2)
    made, _ = emitted(model, replace(INT32, ops=(row,)))
    x = samples_for(model)[0]
    exact, ours = Reference(model).run(x)[out], Reference(made).run(x)[out]
    worst = np.abs(ours - exact).max((0, 2, 3)) / np.abs(exact).max((0, 2, 3))
    assert worst.max() < 0.03
    pair = next(n for n in made.graph if n.inputs[0] is not None and n.inputs[0].dtype == ir.DataType.INT32)
    steps = array_of(pair.inputs[1])
    assert steps is not None
    assert steps[:2].tolist() == steps[2:].tolist() != [steps[0], steps[0]]


def test_a_conv_without_bias_is_given_one(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    out = g("Conv", "x", g.weights(4, 4, 1, 1))
    model = g.model(tmp_path, out)
    plan = with_weights(model, place(model, INT32, seen(model), NEAREST), INT32)
    corrected = replace(plan.weights[out], bias=np.array([1, -1, 0.5, 0], np.float32))
    both = [emit(model, replace(plan, weights={out: one}), INT32) for one in (plan.weights[out], corrected)]
    x = samples_for(model)[0]
    before, after = (Reference(made).run(x)[out] for made in both)
    assert (after - before).mean((0, 2, 3)) == pytest.approx([1, -1, 0.5, 0], abs=0.1)


def test_a_bias_behind_matmul_is_that_of_the_add(tmp_path: Path) -> None:
    g = Graph({"x": (2, 6)})
    product = g("MatMul", "x", g.weights(6, 4))
    out = g("Add", product, g.weights(4))
    model = g.model(tmp_path, out)
    row = OpRule("MatMul", "asked", "test", (0,), 1, 1)
    rules = replace(INT32, ops=(row,))
    plan = with_weights(model, place(model, rules, seen(model), NEAREST), rules)
    bias = np.array([1, 2, 3, 4], np.float32)
    weights = {product: replace(plan.weights[product], bias=bias)}
    made = emit(model, replace(plan, weights=weights), rules)
    x = samples_for(model)[0]
    moved = Reference(made).run(x)[out] - Reference(emit(model, plan, rules)).run(x)[out]
    original = Reference(model).run(x)[out] - Reference(model, intermediate=[product]).run(x)[product]
    assert np.allclose(moved + original, bias, atol=1e-5)


def test_a_plan_without_weights_is_refused(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    conv = g.conv("x", 4, 4)
    model = g.model(tmp_path, conv)
    plan = place(model, RULES, seen(model), NEAREST)
    with pytest.raises(ValueError, match=f"^the plan has no weights for {conv}$"):
        emit(model, plan, RULES)
    by = affine(-1, 1, "int8", symmetric=True)
    other = QuantizationPlan(
        {}, frozenset({"elsewhere"}), {"elsewhere": QuantizedWeights(np.zeros(1, np.int8), by, None)}
    )
    with pytest.raises(ValueError, match=r"^the plan is for another model: it names elsewhere$"):
        emit(model, other, RULES)
