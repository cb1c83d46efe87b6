"""A planted cause gets its own class, and no other; what a plan does about it is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from edgekit.compiler.evaluate.samples import load_samples
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.passes import run_passes
from edgekit.compiler.quantize.causes import (
    DEPTHWISE,
    HEADROOM,
    MIXED,
    NARROW,
    OUTLIERS,
    PER_TENSOR,
    float16_causes,
    int8_causes,
    remedy,
)
from edgekit.compiler.quantize.numerics import affine
from edgekit.compiler.quantize.observe.calibrate import observe
from edgekit.compiler.quantize.placement.kernels import is_depthwise
from edgekit.compiler.quantize.placement.qdq_placement import place
from edgekit.compiler.quantize.placement.rewrites import rewritten
from edgekit.compiler.quantize.search.measurement import BASELINE
from edgekit.compiler.quantize.weights.optimize_weights import optimize
from edgekit.processing.card import load_card
from edgekit.target.quant_rules import ChannelNoise, Rules
from edgekit.tensor_spec import Array
from tests.fixtures.graphs import Graph
from tests.fixtures.quant_rules import RULES

pytestmark = pytest.mark.needs_ort
SHAPE = (1, 8, 16, 16)


def samples(count: int = 6, **planted: tuple[int, float]) -> list[Mapping[str, Array]]:
    """Normal values; ``x=(3, 500.0)`` puts 500 into one place of channel 3 of each."""
    rng = np.random.default_rng(5)
    found: list[Mapping[str, Array]] = [
        {"x": rng.normal(size=SHAPE).astype(np.float32)} for _ in range(count)
    ]
    for channel, size in planted.values():
        for each in found:
            each["x"][0, channel, 4, 7] = size
    return found


def chain(folder: Path, sizes: Sequence[float] = (1.0,) * 8, reader: str = "Conv") -> ir.Model:
    """Conv, whose output channels have these sizes -> Relu -> Conv, depthwise Conv or Concat."""
    g = Graph({"x": SHAPE})
    first = g.weights(8, 8, 1, 1)
    scaled = g(
        "Mul", g("Conv", "x", first, np.zeros(8, np.float32)), np.array(sizes, np.float32).reshape(1, 8, 1, 1)
    )
    if reader == "Depthwise":
        return g.model(folder, g.conv(g.conv(scaled, 8, 8, 3, 8), 8, 8))
    if reader == "Concat":
        other = g("Relu", g.conv("x", 8, 8))
        small = g("Relu", g("Mul", g.conv("x", 8, 8), np.array([0.001], np.float32)))
        return g.model(folder, g.conv(g("Concat", other, small, axis=1), 8, 16))
    return g.model(folder, g.conv(scaled, 8, 8))


def classes(model: ir.Model, given: list[Mapping[str, Array]], rules: Rules = RULES) -> set[str]:
    return {cause.kind for cause in int8_causes(model, observe(model, given), rules)}


def test_nothing_is_told_of_a_network_without_a_cause(tmp_path: Path) -> None:
    assert classes(chain(tmp_path), samples()) == set()
    assert float16_causes(observe(chain(tmp_path), samples())) == []


def test_a_planted_outlier(tmp_path: Path) -> None:
    model, given = chain(tmp_path), samples(x=(3, 500.0))
    causes = {cause.value: cause for cause in int8_causes(model, observe(model, given), RULES)}
    assert {cause.kind for cause in causes.values()} == {OUTLIERS}
    assert causes["x"].wide == pytest.approx(500)
    assert causes["x"].narrow == pytest.approx(2.6, abs=0.4)  # 99 % of normal values
    assert causes["x"].noise > 0.1  # the step is 2


def test_a_planted_narrow_channel(tmp_path: Path) -> None:
    sizes = (0.01, 0.02, 100, 1, 1, 0.01, 0.1, 0.02)
    given = samples()
    model = chain(tmp_path, sizes)
    (cause,) = [c for c in int8_causes(model, observe(model, given), RULES) if c.kind != PER_TENSOR]
    assert cause.kind == NARROW
    assert cause.narrow < 0.05
    assert cause.wide > 200


def test_the_same_before_a_depthwise_conv(tmp_path: Path) -> None:
    model = chain(tmp_path, (0.01, 0.02, 100, 1, 1, 0.01, 0.1, 0.02), "Depthwise")
    read = {
        str(n.inputs[0] and n.inputs[0].name): is_depthwise(n) for n in model.graph if n.op_type == "Conv"
    }
    found = [c for c in int8_causes(model, observe(model, samples()), RULES) if c.kind != PER_TENSOR]
    assert [c.kind == DEPTHWISE for c in found] == [read[c.value] for c in found]
    assert {c.kind for c in found} == {DEPTHWISE, NARROW}  # its own output differs as much


def test_a_weight_with_small_channels(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    weights = g.weights(8, 8, 1, 1) * np.array([1e-4, 1, 1e-4, 1, 1e-4, 1, 1e-4, 1], np.float32).reshape(
        8, 1, 1, 1
    )
    biases = np.where(np.arange(8) % 2, 0, 1).astype(np.float32)  # with them the channels can share a scale
    model = g.model(tmp_path, g("Conv", "x", weights, biases))
    (cause,) = int8_causes(model, observe(model, samples()), RULES)
    assert (cause.kind, cause.nodes) == (PER_TENSOR, (cause.value,))
    assert cause.noise == pytest.approx(0.5, abs=0.01)  # half of the channels are lost
    observed = observe(model, samples())
    plan = place(model, RULES, observed, BASELINE)
    plan = optimize(model, plan, RULES, samples(), BASELINE)
    assert remedy(cause, observed, observed, plan) == ("a scale for each output channel", None)
    one = replace(RULES, ops=(replace(RULES.ops[0], weight_axis=None), *RULES.ops[1:]))
    whole = optimize(model, place(model, one, observed, BASELINE), one, samples(), BASELINE)
    assert remedy(cause, observed, observed, whole)[0].startswith("not repaired")


def test_inputs_of_a_concat_that_differ_in_range(tmp_path: Path) -> None:
    model = chain(tmp_path, reader="Concat")
    mixed = [c for c in int8_causes(model, observe(model, samples()), RULES) if c.kind == MIXED]
    (cause,) = mixed
    assert cause.narrow * 100 < cause.wide


@pytest.mark.needs_shared
def test_the_stem_of_yolox_is_told(shared: Path) -> None:
    """Its Conv_44, a depthwise one, reads channels of .16 and 133: the cause of research on this model."""
    card = load_card(Path(__file__).parents[3] / "samples" / "cards" / "yolox_nano.toml")
    model = open_model(shared / "models" / "yolox_nano.onnx")
    inputs, _ = signature(model)
    run_passes(model)
    photographs = str(shared / "data" / "coco128" / "val" / "images" / "*[0-2].jpg")
    observed = observe(model, load_samples(photographs, inputs, card, 8).arrays)
    found = [c for c in int8_causes(model, observed, RULES) if c.kind == DEPTHWISE]
    (reader,) = [n for n in model.graph if n.outputs[0].name == found[0].nodes[0]]
    assert reader.name == "Conv_44"
    assert 0.1 < found[0].narrow < 0.25
    assert 120 < found[0].wide < 145


@pytest.mark.parametrize(("size", "told"), [(1e5, True), (4e4, True), (3e4, False)])
def test_a_planted_float16_overflow(tmp_path: Path, size: float, told: bool) -> None:
    g = Graph({"x": SHAPE})
    big = g(
        "Clip",
        g("Mul", "x", np.array([size], np.float32)),
        np.array(0, np.float32),
        np.array(size, np.float32),
    )
    model = g.model(tmp_path, g.conv(g("Mul", big, np.array([1 / size], np.float32)), 4, 8))
    found = float16_causes({big: observe(model, samples())[big]})
    assert bool(found) is told
    for cause in found:
        assert (cause.kind, cause.value) == (HEADROOM, big)
        assert cause.narrow == pytest.approx(size)


def test_what_a_plan_does_about_it(tmp_path: Path) -> None:
    """Cut, kept in float, a scale for each channel, split."""
    model = chain(tmp_path, (0.01, 0.02, 100, 1, 1, 0.01, 0.1, 0.02), "Depthwise")
    observed = observe(model, samples())
    cause = next(c for c in int8_causes(model, observed, RULES) if c.kind == DEPTHWISE)
    plain = place(model, RULES, observed, BASELINE)
    done, left = remedy(cause, observed, observed, plain)
    assert done == "not repaired"
    assert left == pytest.approx(cause.noise)
    for act, words in (("scales", "a scale for each channel"), ("float", "kept in float")):
        rules = replace(RULES, channel_noise=ChannelNoise(0.05, act, "test"))  # type: ignore[arg-type]
        done, left = remedy(cause, observed, observed, place(model, rules, observed, BASELINE))
        assert done == words
        assert left is None if act == "float" else (left is not None and left < cause.noise / 100)


def test_a_range_that_is_cut_is_told(tmp_path: Path) -> None:
    model, given = chain(tmp_path), samples(x=(3, 500.0))
    observed = observe(model, given)
    cause = next(c for c in int8_causes(model, observed, RULES) if c.value == "x")
    plan = place(model, RULES, observed, BASELINE)
    cut = replace(plan, activations={**plan.activations, "x": affine(-4, 4, "int8")})
    done, left = remedy(cause, observed, observed, cut)
    assert done == "the range is cut to 8"
    assert left is not None
    assert left < cause.noise


def test_a_split_silu_is_told(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    sizes = np.array([0.3, 300, 0.3, 300, 0.3, 300, 0.3, 300], np.float32).reshape(8, 1, 1, 1)
    first = g("Conv", "x", g.weights(8, 8, 1, 1) * sizes, g.weights(8) * 0.1)
    silu = g("Mul", first, g("Sigmoid", first))
    model = g.model(tmp_path, g.conv(g.conv(silu, 8, 8, 3, 8), 8, 8))
    rules = replace(
        RULES, bias="int32", channel_noise=ChannelNoise(0.05, "split", "test"), rewrites=("split SiLU",)
    )
    observed = observe(model, samples())
    cause = next(c for c in int8_causes(model, observed, rules) if c.kind == DEPTHWISE)
    graph, prepared = rewritten(model, observed, rules)
    done, left = remedy(cause, observed, prepared, place(graph, rules, prepared, BASELINE))
    assert done.startswith("computed twice")
    assert left is not None
    assert left < cause.noise / 10
