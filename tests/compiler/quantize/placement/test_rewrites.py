"""Rewrites before placement: the meaning is kept, observations fit, and integers lose less."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.onnx_file import save_model
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.quantize.numerics import fake_quantize
from edgekit.compiler.quantize.observe.observers import Observation
from edgekit.compiler.quantize.placement.qdq_graph import emit
from edgekit.compiler.quantize.placement.qdq_placement import place
from edgekit.compiler.quantize.placement.rewrites import Observed, rewritten
from edgekit.compiler.quantize.recipe import Recipe
from edgekit.target.quant_rules import ChannelNoise, OpRule, Rules
from edgekit.tensor_spec import Array
from tests.fixtures.graphs import Graph, samples_for, seen, with_weights
from tests.fixtures.quant_rules import RULES, SHAPE

Build = Callable[[Path], ir.Model]
pytestmark = pytest.mark.needs_ort

GATES = replace(
    RULES,
    bias="int32",
    ops=(*RULES.ops, OpRule("HardSwish", "own", "test")),
    rewrites=("linear gates",),
)
SPLIT = replace(
    RULES, bias="int32", channel_noise=ChannelNoise(0.05, "split", "test"), rewrites=("split SiLU",)
)


def gated(folder: Path) -> ir.Model:
    """HardSwish, and squeeze and excitation with a HardSigmoid."""
    g = Graph({"x": SHAPE})
    swish = g("HardSwish", g.conv("x", 4, 4))
    squeezed = g.conv(g("GlobalAveragePool", swish), 4, 4)
    gate = g("HardSigmoid", squeezed, alpha=0.25, beta=0.4)
    return g.model(folder, g.conv(g("Mul", swish, gate), 2, 4))


def outlying(
    folder: Path, scale: float = 300, multiplier: int = 1, shift: float = 0, small: float = 0.3
) -> ir.Model:
    """Conv, SiLU, depthwise Conv; two channels are ``scale`` times the others."""
    g = Graph({"x": SHAPE})
    sizes = np.array([0.3, scale, small, scale], np.float32)
    weights = g.weights(4, 4, 1, 1) * sizes.reshape(4, 1, 1, 1)
    bias = g.weights(4) * np.minimum(sizes, 1) - np.array([shift, 0, 0, 0], np.float32)
    first = g("Conv", "x", weights, bias)
    silu = g("Mul", first, g("Sigmoid", first))
    size = np.repeat(np.array([0.3, scale, 0.3, scale], np.float32), multiplier).reshape(-1, 1, 1, 1)
    outputs = 4 * multiplier
    bias = g.weights(outputs)
    absorbing = g.weights(outputs, 1, 3, 3) / size
    depthwise = g("Conv", silu, absorbing, bias, group=4, pads=[1, 1, 1, 1])
    return g.model(folder, g.conv(depthwise, 2, outputs))


def difference(model: ir.Model, other: ir.Model) -> float:
    """Largest difference of the first output over its largest value."""
    name = str(model.graph.outputs[0].name)
    worst = 0.0
    for sample in samples_for(model):
        exact, found = Reference(model).run(sample)[name], Reference(other).run(sample)[name]
        worst = max(worst, float(np.abs(found - exact).max() / np.abs(exact).max()))
    return worst


def snr_db(model: ir.Model, rules: Rules, observations: Observed, exact: ir.Model) -> float:
    plan = place(model, rules, observations, Recipe(ranges="l4"))
    made = emit(model, with_weights(model, plan, rules), rules)
    name = str(exact.graph.outputs[0].name)
    signal = noise = 0.0
    for sample in samples_for(exact):
        wanted = Reference(exact).run(sample)[name].astype(np.float64)
        signal += float((wanted**2).sum())
        noise += float(((Reference(made).run(sample)[name] - wanted) ** 2).sum())
    return float(10 * np.log10(signal / noise))


@pytest.mark.parametrize(("build", "rules"), [(gated, GATES), (outlying, SPLIT)])
def test_the_meaning_is_kept_and_the_given_model_too(tmp_path: Path, build: Build, rules: Rules) -> None:
    model = build(tmp_path)
    before = save_model(model)
    other, _ = rewritten(model, seen(model), rules)
    assert other is not model
    assert difference(model, other) < 2e-6
    assert save_model(model) == before
    for node in other.graph:
        assert all(value.dtype is not None and static_dims(value) is not None for value in node.outputs)


@pytest.mark.parametrize(("build", "rules"), [(gated, GATES), (outlying, SPLIT)])
def test_observations_are_those_of_the_new_graph(tmp_path: Path, build: Build, rules: Rules) -> None:
    """But where nothing is lost: an observation may be cut where a gate is closed."""
    model = build(tmp_path)
    other, observations = rewritten(model, seen(model), rules)
    assert len(seen(other)) > 2
    for name, found in seen(other).items():
        mine = observations[name]
        assert mine.high == pytest.approx(found.high, rel=1e-5, abs=1e-6), name
        assert mine.axis == found.axis
        assert (mine.low >= found.low - 1e-5 - 1e-5 * np.abs(found.low)).all(), name


def test_gates_are_made_of_what_computes_on_integers(tmp_path: Path) -> None:
    model = gated(tmp_path)
    other, observations = rewritten(model, seen(model), GATES)
    ops = [node.op_type for node in other.graph]
    assert not {"HardSwish", "HardSigmoid"} & set(ops)
    assert ops.count("Clip") == 2
    rules = replace(GATES, ops=(*GATES.ops, OpRule("GlobalAveragePool", "own", "test")))
    plan = place(other, rules, observations, Recipe())
    left = {str(node.outputs[0].name) for node in other.graph} - plan.nodes
    assert left == set()
    assert snr_db(other, rules, observations, model) > 30


def test_what_stays_float_is_not_rewritten(tmp_path: Path) -> None:
    model = gated(tmp_path)
    observations = seen(model)
    floats = {str(n.outputs[0].name) for n in model.graph if n.op_type in ("HardSwish", "Conv")}
    assert rewritten(model, observations, GATES, floats) == (model, observations)
    rowless = replace(GATES, ops=tuple(rule for rule in GATES.ops if rule.op != "HardSwish"))
    other, _ = rewritten(model, observations, rowless)
    assert "HardSwish" in [node.op_type for node in other.graph]


def test_channels_are_alike_after_the_split(tmp_path: Path) -> None:
    model = outlying(tmp_path)
    observations = seen(model)
    other, observed = rewritten(model, observations, SPLIT)
    assert [node.op_type for node in other.graph].count("Conv") == 4
    assert snr_db(other, SPLIT, observed, model) > snr_db(model, SPLIT, observations, model) + 10


def test_each_channel_has_the_scale_that_it_needs(tmp_path: Path) -> None:
    """A channel of small values beside one of large ones keeps its bits, though its gate is never closed."""
    model = outlying(tmp_path, small=0.01)
    other, observed = rewritten(model, seen(model), SPLIT)
    plan = place(other, SPLIT, observed, Recipe(ranges="l2"))
    (product,) = [str(node.outputs[0].name) for node in other.graph if node.op_type == "Mul"]
    sample = seen(other)[product].sample
    noise = np.square(fake_quantize(sample, plan.activations[product]) - sample).mean(0)
    assert (10 * np.log10(sample.var(0) / noise)).min() > 25


def test_a_depthwise_conv_with_several_outputs_a_channel_absorbs_its_own(tmp_path: Path) -> None:
    model = outlying(tmp_path, multiplier=2)
    other, _ = rewritten(model, seen(model), SPLIT)
    assert other is not model
    assert difference(model, other) < 2e-6


def test_the_product_is_cut_where_the_gate_is_closed(tmp_path: Path) -> None:
    model = outlying(tmp_path, shift=40)
    other, observations = rewritten(model, seen(model), SPLIT)
    (name,) = [name for name in observations if name.endswith("/scaled")]
    assert observations[name].low.min() > 0.5 * seen(other)[name].low.min()
    assert observations[name].sample.min() >= observations[name].low.min()


def test_the_range_of_what_others_read_too_is_not_cut(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    first = g("Conv", "x", 9 * g.weights(4, 4, 1, 1))
    swish = g("HardSwish", first)
    alone = g.model(tmp_path, g.conv(swish, 2, 4))
    assert rewritten(alone, seen(alone), GATES)[1][first].low.min() == -3
    shared = g.model(tmp_path, g.conv(g("Add", swish, first), 2, 4))
    observations = seen(shared)
    assert observations[first].low.min() < -4
    assert rewritten(shared, observations, GATES)[1][first] is observations[first]


def test_channels_that_share_a_scale_well_are_not_split(tmp_path: Path) -> None:
    model = outlying(tmp_path, scale=0.5)
    observations = seen(model)
    assert rewritten(model, observations, SPLIT) == (model, observations)


def test_a_silu_that_is_read_elsewhere_is_not_split(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    first = g.conv("x", 4, 4)
    silu = g("Mul", first, g("Sigmoid", first))
    last = g.conv(g("Add", g.conv(silu, 4, 4, 3, groups=4), silu), 2, 4)
    model = g.model(tmp_path, last)
    observations = {name: uneven(one) for name, one in seen(model).items()}
    assert rewritten(model, observations, SPLIT) == (model, observations)


def uneven(one: Observation) -> Observation:
    """An observation of channels that differ by a thousand."""
    factors: Array = np.where(np.arange(len(one.low)) % 2, 1000, 1).astype(np.float32)
    return replace(one, low=one.low * factors, high=one.high * factors, sample=one.sample * factors)
