"""Placement: where pairs stand, what shares a scale, and what stays float."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import onnx_ir as ir
import pytest

from edgekit.compiler.quantize.numerics import channel_noise
from edgekit.compiler.quantize.observe.observers import Observation
from edgekit.compiler.quantize.placement.kernels import find_kernels, is_depthwise
from edgekit.compiler.quantize.placement.qdq_placement import RangeCache, place
from edgekit.compiler.quantize.recipe import QuantizationPlan, Recipe
from edgekit.target.quant_rules import ChannelNoise, OpRule, Rules
from tests.fixtures.graphs import NEAREST, Graph, seen
from tests.fixtures.quant_rules import FLOATING, RULES, SHAPE, uneven

pytestmark = pytest.mark.needs_ort


def placed(model: ir.Model, rules: Rules = RULES, *floats: str, recipe: Recipe = NEAREST) -> QuantizationPlan:
    return place(model, rules, seen(model), recipe, frozenset(floats))


def test_no_pair_inside_a_fusion(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    conv = g.conv("x", 4, 4)
    relu = g("Relu", conv)
    last = g.conv(relu, 2, 4)
    plan = placed(g.model(tmp_path, last))
    assert set(plan.activations) == {"x", relu, last}
    assert plan.nodes == {conv, relu, last}


def test_a_value_read_beside_the_fusion_has_a_pair(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    conv = g.conv("x", 4, 4)
    relu = g("Relu", conv)
    last = g.conv(g("Add", conv, relu), 2, 4)
    assert conv in placed(g.model(tmp_path, last)).activations


def test_an_absorbed_clip_has_its_own_range(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    clip = g("Clip", g.conv("x", 4, 4), np.array(0, np.float32), np.array(0.5, np.float32))
    last = g.conv(clip, 2, 4)
    found = placed(g.model(tmp_path, last)).activations[clip]
    assert int(found.zero_point) == -128
    assert float(found.scale) * 255 == pytest.approx(0.5)


@pytest.mark.parametrize("rules", [RULES, replace(RULES, activations="uint8")])
def test_a_fixed_scale_stands_at_the_producer(tmp_path: Path, rules: Rules) -> None:
    g = Graph({"x": SHAPE})
    conv = g.conv("x", 4, 4)
    gate = g("Sigmoid", conv)
    silu = g("Mul", conv, gate)
    last = g.conv(silu, 2, 4)
    plan = placed(g.model(tmp_path, last), rules)
    assert {conv, gate, silu} <= set(plan.activations)
    fixed = plan.activations[gate]
    assert (float(fixed.scale), int(fixed.zero_point)) == (
        1 / 256,
        0 if rules.activations == "uint8" else -128,
    )
    assert fixed.zero_point.dtype == rules.activations


def test_silu_stays_float_as_a_whole_where_its_sigmoid_has_no_row(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    conv = g.conv("x", 4, 4)
    gate = g("Sigmoid", conv)
    silu = g("Mul", conv, gate)
    last = g.conv(silu, 2, 4)
    rules = replace(RULES, ops=tuple(rule for rule in RULES.ops if rule.op != "Sigmoid"))
    plan = placed(g.model(tmp_path, last), rules)
    assert plan.nodes == {conv, last}
    assert set(plan.activations) == {"x", conv, silu, last}


def test_a_kernel_that_writes_floats_is_stored_where_integers_are_asked_for(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    conv = g.conv("x", 4, 4)
    silu = g("Mul", conv, g("Sigmoid", conv))
    last = g.conv(silu, 2, 4)
    plan = placed(g.model(tmp_path, last), FLOATING)
    assert set(plan.activations) == {"x", silu}


def test_what_a_move_joins_has_one_scale(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    small, large = g.conv("x", 4, 4), g.conv(g.conv("x", 4, 4), 4, 4)
    pool = g("MaxPool", large, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    both = g("Concat", small, pool, axis=1)
    last = g.conv(both, 2, 8)
    model = g.model(tmp_path, last)
    observations = seen(model)
    found = [placed(model).activations[name] for name in (small, large, pool, both)]
    assert len({(float(one.scale), int(one.zero_point)) for one in found}) == 1
    low = min(float(observations[name].low.min()) for name in (small, large))
    high = max(float(observations[name].high.max()) for name in (small, large))
    assert float(found[0].scale) == pytest.approx((high - low) / 255)


def test_a_join_of_a_fixed_scale_and_another_stays_float(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    gate, other = g("Sigmoid", g.conv("x", 4, 4)), g.conv("x", 4, 4)
    both = g("Concat", gate, other, axis=1)
    last = g.conv(both, 2, 8)
    plan = placed(g.model(tmp_path, last))
    assert both not in plan.nodes
    assert {gate, other, last} <= plan.nodes
    assert float(plan.activations[gate].scale) == 1 / 256
    assert float(plan.activations[other].scale) != 1 / 256


def test_a_join_of_equal_fixed_scales_keeps_it(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    both = g("Concat", g("Sigmoid", g.conv("x", 4, 4)), g("Sigmoid", g.conv("x", 4, 4)), axis=1)
    last = g.conv(both, 2, 8)
    plan = placed(g.model(tmp_path, last))
    assert both in plan.nodes
    assert float(plan.activations[both].scale) == 1 / 256


def test_the_tail_stays_float_unless_the_rules_want_it(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    boxes, scores = g.conv("x", 4, 4), g.conv("x", 4, 4)
    sigmoid = g("Sigmoid", scores)
    both = g("Concat", boxes, sigmoid, axis=1)
    model = g.model(tmp_path, both)
    plan = placed(model)
    assert plan.nodes == {boxes, scores}
    assert set(plan.activations) == {"x", boxes, scores}
    assert sigmoid in placed(model, replace(RULES, outputs=True)).nodes


def test_an_activation_at_the_end_belongs_to_its_conv(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    conv = g.conv("x", 4, 4)
    relu = g("Relu", conv)
    plan = placed(g.model(tmp_path, relu))
    assert plan.nodes == {conv, relu}
    assert set(plan.activations) == {"x", relu}


def test_neighbours_without_weights_stay_float(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    total = g("Add", g("MaxPool", "x", kernel_shape=[1, 1]), "x")
    conv = g.conv(g("Softmax", total), 4, 4)
    plan = placed(g.model(tmp_path, conv))
    assert plan.nodes == {conv}


def test_what_only_floats_come_to_is_stored_behind_not_before(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    soft = g("Softmax", "x")
    gated = g("Mul", soft, g("Sigmoid", soft))
    pool = g("MaxPool", gated, kernel_shape=[1, 1])
    last = g.conv(pool, 2, 4)
    plan = placed(g.model(tmp_path, last))
    assert plan.nodes == {pool, last}
    assert set(plan.activations) == {gated, pool, last}


def test_float_nodes_stay_float(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    first = g.conv("x", 4, 4)
    relu = g("Relu", first)
    last = g.conv(relu, 2, 4)
    plan = placed(g.model(tmp_path, last), RULES, first, relu)
    assert plan.nodes == {last}
    assert set(plan.activations) == {relu, last}


def test_what_was_not_observed_or_is_infinite_is_not_stored(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    first = g.conv("x", 4, 4)
    middle = g.conv(g("Softmax", first), 4, 4)
    last = g.conv(g("Softmax", middle), 2, 4)
    model = g.model(tmp_path, last)
    observations = seen(model)
    assert place(model, RULES, observations, NEAREST).nodes == {first, middle, last}
    infinite = replace(observations[middle], high=np.full_like(observations[middle].high, np.inf))
    assert place(model, RULES, {**observations, middle: infinite}, NEAREST).nodes == {first, last}
    del observations[first]
    assert first not in place(model, RULES, observations, NEAREST).nodes


def test_a_constant_operand_is_stored_where_the_row_says_so(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    first = g.conv("x", 4, 4)
    relu = g("Relu", first)
    shift = g.constant(np.array([-0.25, 0.5, 0.125, 0.25], np.float32).reshape(1, 4, 1, 1))
    shifted = g("Add", relu, shift)
    last = g.conv(g("MaxPool", shifted, kernel_shape=[3, 3], pads=[1, 1, 1, 1]), 2, 4)
    model = g.model(tmp_path, last)
    plan = placed(model)
    stored = [name for name in plan.activations if name in model.graph.initializers]
    assert len(stored) == 1
    assert float(plan.activations[stored[0]].scale) == pytest.approx(0.75 / 255)
    bare = replace(RULES, ops=tuple(replace(rule, constants=False) for rule in RULES.ops))
    assert shifted not in placed(model, bare).nodes


def test_channels_that_cannot_share_a_scale_get_one_each(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    first, depthwise, last = uneven(g)
    model = g.model(tmp_path, last)
    rules = replace(FLOATING, channel_noise=ChannelNoise(0.05, "scales", "test"))
    plan = placed(model, rules)
    found = plan.activations[first]
    assert found.axis == 1
    assert found.scale.shape == (4,)
    assert len(set(found.zero_point.tolist())) == 1
    assert plan.activations[depthwise].axis is None
    observation = seen(model)[first]
    assert (
        channel_noise(observation, found)
        < 0.001
        < 0.05
        < channel_noise(observation, placed(model, FLOATING).activations[first])
    )


def test_or_their_reader_and_their_maker_stay_float(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    _, _, last = uneven(g)
    rules = replace(RULES, channel_noise=ChannelNoise(0.05, "float", "test"))
    assert placed(g.model(tmp_path, last), rules).nodes == {last}


def test_the_maker_is_found_behind_floats(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    before = g.conv("x", 4, 4)
    weights = g.weights(4, 4, 1, 1) * np.array([1, 1000, 1, 1000], np.float32).reshape(4, 1, 1, 1)
    first = g("Conv", before, weights)
    depthwise = g.conv(g("Mul", first, g("Sigmoid", first)), 4, 4, 3, groups=4)
    last = g.conv(depthwise, 2, 4)
    sigmoidless = tuple(rule for rule in RULES.ops if rule.op != "Sigmoid")
    rules = replace(RULES, ops=sigmoidless, channel_noise=ChannelNoise(0.05, "float", "test"))
    assert placed(g.model(tmp_path, last), rules).nodes == {before, last}


@pytest.mark.parametrize("silu", [False, True])
@pytest.mark.parametrize("act", ["float", "split"])
def test_the_maker_stays_float_where_only_float_depthwise_reads_it(
    silu: bool, act: Literal["float", "split"], tmp_path: Path
) -> None:
    """As in a placement with float depthwise Convs: no int8 kernel reads the value, but it is stored."""
    g = Graph({"x": SHAPE})
    before = g.conv("x", 4, 4)
    weights = g.weights(4, 4, 1, 1) * np.array([1, 1000, 1, 1000], np.float32).reshape(4, 1, 1, 1)
    first = g("Conv", before, weights)
    depthwise = g.conv(g("Mul", first, g("Sigmoid", first)) if silu else first, 4, 4, 3, groups=4)
    last = g.conv(depthwise, 2, 4)
    sigmoidless = tuple(rule for rule in RULES.ops if rule.op != "Sigmoid")
    rules = replace(RULES, ops=sigmoidless, channel_noise=ChannelNoise(0.05, act, "test"))
    model = g.model(tmp_path, last)
    assert placed(model, rules, depthwise).nodes == {before, last}
    even = replace(rules, channel_noise=ChannelNoise(0.9, act, "test"))
    assert placed(model, even, depthwise).nodes == {before, first, last}


def test_channels_shared_with_another_reader_keep_one_scale(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    first, _, last = uneven(g)
    other = g.conv(first, 2, 4)
    rules = replace(FLOATING, channel_noise=ChannelNoise(0.05, "scales", "test"))
    assert placed(g.model(tmp_path, last, other), rules).activations[first].axis is None


def test_channels_that_are_moved_keep_one_scale(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    first, _, _ = uneven(g)
    pool = g("MaxPool", first, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    last = g.conv(g.conv(pool, 4, 4, 3, groups=4), 2, 4)
    ops = (*FLOATING.ops, OpRule("MaxPool", "inputs", "test", (0,)))
    rules = replace(FLOATING, ops=ops, channel_noise=ChannelNoise(0.05, "scales", "test"))
    activations = placed(g.model(tmp_path, last), rules).activations
    assert activations[first] is activations[pool]
    assert activations[pool].axis is None


def test_the_error_of_a_range_is_measured_behind_the_activation(tmp_path: Path) -> None:
    """What SiLU flattens does not matter: the range of its input is cut at the negative end."""
    g = Graph({"x": SHAPE})
    conv = g.conv("x", 4, 4)
    last = g.conv(g("Mul", conv, g("Sigmoid", conv)), 2, 4)
    model = g.model(tmp_path, last)
    observations = seen(model)
    rng = np.random.default_rng(0)
    sample = rng.normal(-20, 8, (4096, 4)).astype(np.float32)
    sample[::16] = rng.normal(1, 1, (256, 4))
    observations[conv] = Observation(sample.min(0), sample.max(0), sample, 1, 4096)
    low = -128 - int(place(model, RULES, observations, Recipe(ranges="l4")).activations[conv].zero_point)
    found = place(model, RULES, observations, Recipe(ranges="l4")).activations[conv]
    assert low * float(found.scale) > 0.6 * sample.min()


def test_ranges_are_remembered(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    last = g.conv(g.conv("x", 4, 4), 2, 4)
    model = g.model(tmp_path, last)
    observations, range_cache = seen(model), RangeCache()
    first = place(model, RULES, observations, NEAREST, range_cache=range_cache)
    again = place(model, RULES, observations, NEAREST, range_cache=range_cache)
    assert all(first.activations[name] is again.activations[name] for name in first.activations)
    other = place(model, RULES, observations, Recipe(ranges="l4"), range_cache=range_cache)
    assert not any(first.activations[name] is other.activations[name] for name in first.activations)


def test_a_row_fits_by_attributes_ranks_and_what_is_constant(tmp_path: Path) -> None:
    g = Graph({"x": (1, 6), "y": (6, 4)})
    product = g("Gemm", "x", g.weights(6, 4), g.weights(4))
    transposed = g("Gemm", product, g.weights(5, 4), g.weights(5), transB=1)
    variable = g("MatMul", "x", "y")
    stack = g("MatMul", product, g.weights(3, 4, 2))
    model = g.model(tmp_path, transposed, variable, stack)
    row = OpRule("Gemm", "own", "test", (0,), 1, 1, bias=2, where=(("transB", (0,)),))
    matmul = OpRule("MatMul", "own", "test", (0,), 1, 1, weight_ranks=(2,))

    def names(*rows: OpRule) -> set[str]:
        return {kernel.name for kernel in find_kernels(model, replace(RULES, ops=rows))}

    assert names(row, matmul) == {product}
    assert names(row, replace(matmul, weight_ranks=())) == {product, stack}
    assert names(replace(row, where=()), matmul) == {product, transposed}
    assert names(replace(row, ranks=(4,))) == set()
    assert names(OpRule("MatMul", "own", "test")) == set()


def test_depthwise_is_one_input_channel_a_group(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    grouped, depthwise = g.conv("x", 4, 4, groups=2), g.conv("x", 8, 4, groups=4)
    nodes = {str(node.outputs[0].name): node for node in g.model(tmp_path, grouped, depthwise).graph}
    assert not is_depthwise(nodes[grouped])
    assert is_depthwise(nodes[depthwise])
