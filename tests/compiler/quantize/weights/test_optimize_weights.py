"""Weights found layer by layer: they do what their recipe promises, and depend on nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from edgekit.compiler.evaluate.samples import Sample
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.quantize.numerics import dequantize
from edgekit.compiler.quantize.placement.qdq_graph import emit
from edgekit.compiler.quantize.placement.qdq_placement import place
from edgekit.compiler.quantize.recipe import QuantizationPlan, QuantizedWeights, Recipe
from edgekit.compiler.quantize.weights.optimize_weights import optimize, significant_mean
from edgekit.compiler.quantize.weights.rounding import pairs_of
from edgekit.compiler.quantize.weights.value_digests import LruCache, WeightCache
from edgekit.target.quant_rules import Fusion, OpRule, Rules
from edgekit.tensor_spec import Array
from tests.fixtures.graphs import NEAREST, Graph, samples_for, seen

pytestmark = pytest.mark.needs_ort

RULES = Rules(
    target="test",
    activations="uint8",
    symmetric=False,
    ops=(
        OpRule("Conv", "own", "test", (0,), 1, 0, bias=2),
        OpRule("ConvTranspose", "own", "test", (0,), 1, 1, bias=2),
        OpRule("Gemm", "own", "test", (0,), 1, 0, bias=2, where=(("transB", (1,)),)),
        OpRule("Gemm", "own", "test", (0,), 1, 1, bias=2),
        OpRule("MatMul", "own", "test", (0,), 1, 1),
        OpRule("Add", "own", "test"),
        OpRule("Concat", "inputs", "test"),
    ),
    fusions=(Fusion((("Conv",), ("Relu", "Clip")), "test"), Fusion((("MatMul",), ("Bias",)), "test")),
)
FLOATS = replace(
    RULES, ops=(replace(RULES.ops[0], output="asked"), *RULES.ops[1:])
)  # that come out of a Conv
GPTQ = Recipe(ranges="minmax", samples=8, positions=512)
BIAS = replace(GPTQ, rounding="nearest")
ONLY_GPTQ = replace(GPTQ, bias_correction=False)


def small(folder: Path) -> ir.Model:
    """Two branches, a depthwise Conv, a float node between integers, and a Gemm at the end."""
    g = Graph({"x": (1, 3, 12, 12)})
    stem = g("Clip", g.conv("x", 8, 3, 3), np.array(0, np.float32), np.array(1.5, np.float32))
    deep = g("Relu", g.conv(stem, 8, 8, 3, groups=8))
    point = g.conv(g("Sigmoid", deep), 8, 8)
    both = g("Concat", g("Add", stem, point), g("Relu", g.conv(stem, 6, 8, 3, groups=2)), axis=1)
    pooled = g("Flatten", g("GlobalAveragePool", both))
    return g.model(folder, g("Gemm", pooled, g.weights(5, 14), g.weights(5), transB=1))


def found(
    model: ir.Model, recipe: Recipe, rules: Rules = RULES, cache: WeightCache | None = None
) -> QuantizationPlan:
    return optimize(
        model, place(model, rules, seen(model), recipe), rules, samples_for(model, 8), recipe, cache
    )


def same(one: QuantizationPlan, other: QuantizationPlan) -> bool:
    def equal(a: QuantizedWeights, b: QuantizedWeights) -> bool:
        biases = [weights.bias for weights in (a, b) if weights.bias is not None]
        return (
            np.array_equal(a.stored, b.stored)
            and np.array_equal(a.affine.scale, b.affine.scale)
            and (not biases or (len(biases) == 2 and np.array_equal(biases[0], biases[1])))
        )

    return one.weights.keys() == other.weights.keys() and all(
        equal(weights, other.weights[name]) for name, weights in one.weights.items()
    )


def noise(model: ir.Model, plan: QuantizationPlan, samples: Sequence[Sample], rules: Rules = RULES) -> Array:
    """Quantized less float, of the first output, over all samples."""
    name = str(model.graph.outputs[0].name)
    float_run, integer_run = Reference(model), Reference(emit(model, plan, rules))
    return np.stack([integer_run.run(one)[name] - float_run.run(one)[name] for one in samples])


def power(array: Array) -> float:
    return float(np.square(array).mean())


def test_every_node_with_weights_has_some_and_the_model_is_as_it_was(tmp_path: Path) -> None:
    model = small(tmp_path)
    plan = found(model, GPTQ)
    weighty = [n for n in model.graph if n.op_type in ("Conv", "Gemm")]
    assert set(plan.weights) == {str(node.outputs[0].name) for node in weighty}
    for node in weighty:
        weights = plan.weights[str(node.outputs[0].name)]
        value = node.inputs[1]
        assert value is not None
        assert value.const_value is not None
        real = value.const_value.numpy()
        assert weights.stored.dtype == np.int8
        assert weights.stored.shape == real.shape
        assert np.abs(weights.stored.astype(int)).max() <= 127
        close = np.abs(dequantize(weights.stored, weights.affine) - real).max(axis=(1, 2, 3)[: real.ndim - 1])
        assert (close < 6 * weights.affine.scale).all()


def test_nearest_needs_no_samples(tmp_path: Path) -> None:
    model = small(tmp_path)
    plan = optimize(model, place(model, RULES, seen(model), NEAREST), RULES, [], NEAREST)
    assert plan.weights
    for name, weights in plan.weights.items():
        node = next(n for n in model.graph if n.outputs[0].name == name)
        value = node.inputs[1]
        assert value is not None
        assert value.const_value is not None
        error = np.abs(dequantize(weights.stored, weights.affine) - value.const_value.numpy())
        limit = weights.affine.scale.reshape(-1, *[1] * (error.ndim - 1)) * 0.5001
        assert (error <= limit).all()
        bias = node.inputs[2]
        assert bias is not None
        assert bias.const_value is not None
        assert weights.bias is not None
        assert (weights.bias == bias.const_value.numpy()).all()


def correlated(g: Graph, x: str, channels: int) -> str:
    """More channels than there is to say: what GPTQ lives on."""
    return g("Relu", g.conv(x, channels, 3, 1))


def test_gptq_beats_nearest_where_inputs_are_correlated(tmp_path: Path) -> None:
    g = Graph({"x": (1, 3, 12, 12)})
    weights = g.weights(16, 64, 1, 1)
    weights[:, 0] *= 20  # coarse steps: the rounding of the weights is what is left of the noise
    model = g.model(tmp_path, g("Conv", correlated(g, "x", 64), weights))
    held_out = samples_for(model, 24)[8:]
    plain = power(noise(model, found(model, BIAS, FLOATS), held_out, FLOATS))
    assert power(noise(model, found(model, GPTQ, FLOATS), held_out, FLOATS)) < 0.7 * plain


def test_only_what_is_significant_mean_is_corrected() -> None:
    shared = np.tile([0.5, -2.0], (16, 1))
    assert significant_mean(shared).tolist() == [0.5, -2.0]
    assert significant_mean(shared[:1]).tolist() == [0.5, -2.0]  # nothing is known of chance
    assert significant_mean(np.array([[1.0, 3.0], [-1.0, 1.0]])).tolist() == [0.0, 1.5]
    draw = np.random.default_rng(1).normal(0, 1, (16, 5000))
    found = significant_mean(draw)
    assert np.square(found).mean() < 0.5 * np.square(draw.mean(axis=0)).mean()  # what a mean alone gets wrong
    assert np.abs(significant_mean(draw + 3) - 3).mean() < 0.3


def test_a_correction_that_rests_on_few_values_does_no_harm(tmp_path: Path) -> None:
    """Behind a global pool each sample has one position."""
    g = Graph({"x": (1, 8, 6, 6)})
    pooled = g("GlobalAveragePool", g("Relu", g.conv("x", 16, 8, 3)))
    model = g.model(tmp_path, g.conv(pooled, 8, 16))
    held_out = samples_for(model, 40)[8:]
    plain, corrected = (power(noise(model, found(model, recipe), held_out)) for recipe in (ONLY_GPTQ, GPTQ))
    assert corrected < 1.2 * plain


def test_bias_correction_takes_the_mean_error_out(tmp_path: Path) -> None:
    """At all positions of all samples here; what may be chance, of eight samples, is left."""
    g = Graph({"x": (1, 3, 8, 8)})
    model = g.model(tmp_path, g("Sigmoid", g.conv(g("Relu", g.conv("x", 32, 3, 3)), 6, 32, 1)))
    last = next(node.inputs[0] for node in model.graph if node.op_type == "Sigmoid")
    assert last is not None
    name, samples = str(last.name), samples_for(model, 8)
    means = {}
    for recipe in (replace(BIAS, bias_correction=False), BIAS, GPTQ):
        quantized = Reference(emit(model, found(model, recipe, FLOATS), FLOATS), intermediate=[name])
        exact = Reference(model, intermediate=[name])
        errors = [quantized.run(one)[name] - exact.run(one)[name] for one in samples]
        means[recipe] = np.abs(np.mean(errors, axis=(0, 1, 3, 4))).max()
    before, *after = means.values()
    assert max(after) < 0.1 * before


def test_conv_transpose_and_matmul_are_corrected_too(tmp_path: Path) -> None:
    g = Graph({"x": (1, 3, 8, 8)})
    wide = correlated(g, "x", 16)
    up = g("ConvTranspose", wide, g.weights(16, 6, 2, 2), g.weights(6), strides=[2, 2])
    rows = g("Reshape", up, np.array([1, 6, 256]))
    rows = g("Transpose", rows, perm=[0, 2, 1])
    made = g("Add", g("MatMul", rows, g.weights(6, 4)), g.weights(4))
    model = g.model(tmp_path, made)
    plain, corrected = found(model, NEAREST), found(model, replace(BIAS, positions=4096))
    assert {weights.stored.shape for weights in plain.weights.values()} >= {(16, 6, 2, 2), (6, 4)}
    for name, one in plain.weights.items():
        after = corrected.weights[name].bias
        assert after is not None
        assert one.bias is None or not np.array_equal(one.bias, after)
    samples = samples_for(model, 8)
    means = [np.abs(noise(model, plan, samples).mean(axis=(0, 1, 2))).max() for plan in (plain, corrected)]
    assert means[1] < 0.5 * means[0]


def test_weights_without_columns_are_rounded_to_nearest(tmp_path: Path) -> None:
    """MatMuls with a stack of matrices, with a vector, and with the weights first."""
    g = Graph({"x": (2, 3, 4)})
    stacked = g("MatMul", "x", g.weights(2, 4, 5))
    vector = g("MatMul", stacked, g.weights(5))
    model = g.model(tmp_path, vector)
    rules = replace(RULES, pair_limit=128)
    plan = found(model, GPTQ, rules)
    assert {name: one.affine.scale.shape for name, one in plan.weights.items()} == {stacked: (5,), vector: ()}
    exact = Reference(model).run(samples_for(model)[0])[vector]
    assert power(noise(model, plan, samples_for(model), rules)) < 1e-3 * power(exact)
    first = Graph({"x": (1, 4, 6)})
    rules = replace(RULES, ops=(OpRule("MatMul", "own", "test", (1,), 0, 0),))
    made = first("MatMul", first.weights(5, 4), "x")
    model = first.model(tmp_path, made)
    plan = found(model, GPTQ, rules)
    assert plan.weights[made].affine.scale.shape == (5,)
    assert power(noise(model, plan, samples_for(model), rules)) < 1e-3


def test_compensation_comes_nearer_to_the_float_outputs(tmp_path: Path) -> None:
    g = Graph({"x": (1, 3, 12, 12)})
    model = g.model(tmp_path, g.conv(correlated(g, correlated_3(g), 64), 16, 64))
    held_out = samples_for(model, 24)[8:]
    assert power(noise(model, found(model, replace(GPTQ, compensation=1.0)), held_out)) < power(
        noise(model, found(model, BIAS), held_out)
    )


def correlated_3(g: Graph) -> str:
    return g.conv(correlated(g, "x", 24), 3, 24)


@pytest.mark.parametrize("recipe", [GPTQ, BIAS])
def test_pairs_stay_below_the_limit_of_the_target(tmp_path: Path, recipe: Recipe) -> None:
    model = small(tmp_path)
    limited = found(model, recipe, replace(RULES, pair_limit=128))
    over = dict.fromkeys(limited.weights, 0)
    for plan in (limited, found(model, recipe)):
        for name, weights in plan.weights.items():
            stored = weights.stored.astype(int).reshape(len(weights.stored), -1)
            if weights.stored.shape == (8, 1, 3, 3):
                continue  # depthwise: adds in int32
            kernel_size = int(np.prod(weights.stored.shape[2:]))
            pairs = pairs_of(stored.shape[1] // kernel_size, kernel_size)
            one, other = stored[:, pairs[:, 0]], stored[:, pairs[:, 1]]
            bad = int(((one * other > 0) & (np.abs(one + other) > 128)).sum())
            if plan is limited:
                assert bad == 0
            over[name] += bad
    assert sum(over.values()) > 0, "nothing was over the limit without it: the test shows nothing"


def test_a_dead_input_channel_and_a_dead_output_channel(tmp_path: Path) -> None:
    g = Graph({"x": (1, 3, 8, 8)})
    first, bias = g.weights(8, 3, 3, 3), g.weights(8)
    first[2], bias[2] = 0, -1  # behind the Relu: always zero
    second = g.weights(4, 8, 1, 1)
    second[3] = 0
    dead = g("Relu", g("Conv", "x", first, bias, pads=[1, 1, 1, 1]))
    made = g("Conv", dead, second, np.array([0.1, 0.2, 0.3, 0.4], np.float32))
    model = g.model(tmp_path, made)
    plan = found(model, GPTQ)
    weights = plan.weights[made]
    assert (weights.stored[3] == 0).all()
    assert np.isfinite(weights.affine.scale).all()
    assert weights.bias is not None
    assert weights.bias[3] == pytest.approx(0.4, abs=1e-6)
    assert power(noise(model, plan, samples_for(model))) < 1e-3


def test_a_bias_that_int32_cannot_hold_at_a_tiny_scale_has_a_larger_one(tmp_path: Path) -> None:
    g = Graph({"x": (1, 4, 6, 6)})
    weights = g.weights(2, 4, 1, 1)
    weights[1] *= 1e-9
    model = g.model(tmp_path, g("Conv", "x", weights, np.array([0, 50], np.float32)))
    rules = replace(RULES, bias="int32")
    for recipe in (GPTQ, NEAREST):
        assert (
            np.abs(noise(model, found(model, recipe, rules), samples_for(model), rules)[:, :, 1]).max() < 0.5
        )


def test_large_activations_do_not_overflow(tmp_path: Path) -> None:
    """Values between stretches are kept in float16 where that holds them, and in float32 where not."""
    g = Graph({"x": (1, 3, 8, 8)})
    big = g("Mul", g("Relu", g.conv("x", 8, 3)), np.array(1e6, np.float32))
    tiny = g("Mul", g("Sigmoid", g.conv(big, 4, 8)), np.array(1e-7, np.float32))
    made = g.conv(g("Concat", g("Mul", tiny, np.array(1e7, np.float32)), big, axis=1), 4, 12)
    model = g.model(tmp_path, made)
    plan = found(model, GPTQ)
    exact = Reference(model).run(samples_for(model)[0])[made]
    assert power(noise(model, plan, samples_for(model))) < 1e-3 * power(exact)


def test_the_order_of_the_samples_changes_nothing(tmp_path: Path) -> None:
    model = small(tmp_path)
    plan, samples = place(model, RULES, seen(model), GPTQ), samples_for(model, 8)
    forwards = optimize(model, plan, RULES, samples, GPTQ)
    assert same(forwards, optimize(model, plan, RULES, samples[::-1], GPTQ))
    assert not same(forwards, optimize(model, plan, RULES, samples[:7], GPTQ))


@pytest.mark.parametrize("recipe", [GPTQ, BIAS, replace(GPTQ, compensation=1.0), ONLY_GPTQ])
def test_a_memo_changes_nothing_but_the_time(tmp_path: Path, recipe: Recipe) -> None:
    """Plans with other nodes in float share what stands before them."""
    model, cache = small(tmp_path), WeightCache()
    samples, observations = samples_for(model, 8), seen(model)
    steps: list[int] = []
    convs = [str(node.outputs[0].name) for node in model.graph if node.op_type == "Conv"]
    for floats in ([], convs[-1:], convs[1:2], [], convs[:1]):
        plan = place(model, RULES, observations, recipe, frozenset(floats))
        steps.append(0)

        def count(done: int, total: int) -> None:
            steps[-1] = total
            assert 0 < done <= total

        again = optimize(model, plan, RULES, samples, recipe, cache, count)
        assert same(again, optimize(model, plan, RULES, samples, recipe)), floats
    nodes = 5
    assert steps[0] == 8 + nodes
    assert 0 < steps[1] < 8 + nodes - 1
    assert steps[3] == 0


def test_a_memo_forgets_what_was_not_used_for_longest() -> None:
    kept: LruCache[str] = LruCache(10)
    for name in "abc":
        kept.put(name, name.upper(), 4)
        kept.get("a")
    assert [kept.get(name) for name in "abc"] == ["A", None, "C"]
    kept.put("a", "new", 10)
    assert [kept.get(name) for name in "abc"] == ["new", None, None]
    assert len(kept) == 1


def test_subgraphs_are_opaque_and_read_what_emission_lets_them_read(tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    g = Graph({"x": (1, 3, 8, 8)})
    inside = g("Relu", g.conv("x", 4, 3, 3))
    # The condition depends on the input, so no pass can decide it; both branches read a value from outside.
    largest = g("ReduceMax", "x", keepdims=0)
    condition = g("Greater", largest, np.array(0.0, np.float32))
    branches = []
    for op in ("Sigmoid", "Neg"):
        result = helper.make_tensor_value_info(f"{op}_out", TensorProto.FLOAT, [1, 4, 8, 8])
        branches.append(helper.make_graph([helper.make_node(op, [inside], [f"{op}_out"])], op, [], [result]))
    chosen = g("If", condition, then_branch=branches[0], else_branch=branches[1])
    model = g.model(tmp_path, g.conv(chosen, 4, 4, 3))
    assert any(node.op_type == "If" for node in model.graph)
    plan = found(model, GPTQ)
    assert len(plan.weights) == 2
    assert power(noise(model, plan, samples_for(model))) < 1e-3


@pytest.mark.parametrize("recipe", [GPTQ, BIAS, replace(GPTQ, compensation=1.0)])
def test_targets_that_differ_in_nothing_that_counts_share_what_was_found(
    tmp_path: Path, recipe: Recipe
) -> None:
    """uint8 or int8, where a bias is stored, a limit of pairs that no kernel of the network has."""
    model, samples, cache = small(tmp_path), samples_for(small(tmp_path), 8), WeightCache()
    shifted = replace(RULES, activations="int8", target="other")
    steps: list[int] = []
    for rules in (RULES, shifted, replace(shifted, bias="int32")):
        plan = place(model, rules, seen(model), recipe)
        steps.append(0)

        def count(done: int, total: int) -> None:
            steps[-1] = total

        shared = optimize(model, plan, rules, samples, recipe, cache, count)
        assert same(shared, optimize(model, plan, rules, samples, recipe))
    assert steps == [8 + 5, 0, 0]


def test_targets_whose_pairs_are_limited_share_nothing(tmp_path: Path) -> None:
    model, cache = small(tmp_path), WeightCache()
    found(model, GPTQ, cache=cache)
    limited = replace(RULES, pair_limit=128)
    assert same(found(model, GPTQ, limited, cache), found(model, GPTQ, limited))
    assert not same(found(model, GPTQ, limited), found(model, GPTQ))
