"""Channels of unlike size between two Convs: int8 works again, and the float outputs stay as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from edgekit.compiler.evaluate.fidelity import worst_snr_db
from edgekit.compiler.evaluate.samples import load_samples
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.compiler.quantize import equalization
from edgekit.compiler.quantize.equalization import Equalization, equalize
from edgekit.compiler.quantize.observe.calibrate import observe
from edgekit.compiler.quantize.observe.observers import Observation
from edgekit.compiler.quantize.placement.qdq_graph import emit
from edgekit.compiler.quantize.placement.qdq_placement import place
from edgekit.compiler.quantize.weights.optimize_weights import optimize
from edgekit.compiler.quantize.weights.value_digests import WeightCache
from edgekit.processing import load_card
from edgekit.target.build_target import resolve
from edgekit.target.installed_profiles import find_profile
from edgekit.tensor_spec import Array
from tests.fixtures.graphs import NEAREST, Graph

CARDS = Path(__file__).resolve().parents[3] / "samples" / "cards"
SIZES = np.exp(np.random.default_rng(0).uniform(-np.log(64), np.log(64), 16)).astype(np.float32)
BOUNDS = (np.array(0, np.float32), np.array(3, np.float32))
Samples = Sequence[Mapping[str, Array]]

pytestmark = pytest.mark.needs_ort


def noise(seed: int, count: int = 8, scale: float = 1.0) -> Samples:
    rng = np.random.default_rng(seed)
    return [{"x": rng.normal(0, scale, (1, 3, 16, 16)).astype(np.float32)} for _ in range(count)]


def outputs_of(model: ir.Model, samples: Samples) -> Samples:
    reference = Reference(model)
    return [reference.run(sample) for sample in samples]


def equalized(model: ir.Model, held_out: Samples | None = None) -> Equalization:
    samples = noise(2) if held_out is None else held_out
    return equalize(model, observe(model, noise(1)), samples, outputs_of(model, samples))


def int8_db(
    model: ir.Model, observations: Mapping[str, Observation], calibration: Samples, samples: Samples,
    expected: Samples,
) -> float:  # fmt: skip
    """SNR of plain int8 by the rules of ONNX Runtime."""
    rules = resolve(find_profile("ort")).rules
    assert rules is not None
    plan = place(model, rules, observations, NEAREST)
    plan = optimize(model, plan, rules, calibration, NEAREST, WeightCache())
    return worst_snr_db(expected, outputs_of(emit(model, plan, rules), samples))


def planted(folder: Path, *between: str, depthwise: bool = False, sizes: Array = SIZES) -> ir.Model:
    """Two Convs, the channels between them scaled by ``sizes``, with these ops between them."""
    g = Graph({"x": (1, 3, 16, 16)})
    weights, bias = g.weights(16, 3, 3, 3), g.weights(16) / 4
    x = g("Conv", "x", weights * sizes.reshape(-1, 1, 1, 1), bias * sizes, pads=[1, 1, 1, 1])
    for op in between:
        if op == "Clip":
            x = g("Clip", x, *BOUNDS)
        elif op == "PRelu":
            x = g("PRelu", x, np.full((16, 1, 1), 0.1, np.float32))
        elif op.endswith("Pool"):
            x = g(op, x, kernel_shape=[2, 2], strides=[2, 2])
        else:
            x = g(op, x)
    if depthwise:
        kernel = g.weights(16, 1, 3, 3) / sizes.reshape(-1, 1, 1, 1)
        x = g("Relu", g("Conv", x, kernel, pads=[1, 1, 1, 1], group=16))
        return g.model(folder, g.conv(x, 4, 16))
    return g.model(folder, g("Conv", x, g.weights(4, 16, 1, 1) / sizes.reshape(1, -1, 1, 1)))


@pytest.mark.parametrize(
    ("between", "depthwise"),
    [
        ((), False),
        (("Relu",), True),
        (("LeakyRelu", "MaxPool"), False),
        (("PRelu", "AveragePool"), False),
    ],
)
def test_int8_works_again(between: tuple[str, ...], depthwise: bool, tmp_path: Path) -> None:
    model = planted(tmp_path, *between, depthwise=depthwise)
    samples = noise(3)
    expected = outputs_of(model, samples)
    found = equalized(model)
    assert [row["undone"] for row in found.layers] == [False]
    assert [len(row["values"]) for row in found.layers] == [1 + len(between)]
    assert found.summary() == "1 pairs of layers equalized"
    assert worst_snr_db(expected, outputs_of(found.model, samples)) > 100
    assert [node.op_type for node in found.model.graph] == [node.op_type for node in model.graph]
    before = int8_db(model, observe(model, noise(1)), noise(1), samples, expected)
    after = int8_db(found.model, found.observations, noise(1), samples, expected)
    print(f"{before:.1f} -> {after:.1f} dB")
    # Before a depthwise Conv, ONNX Runtime's rules leave such a value in float.
    assert after > 20
    assert (before < 6) != depthwise


def test_the_observations_are_those_of_the_new_model(tmp_path: Path) -> None:
    found = equalized(planted(tmp_path, "Relu", "MaxPool"))
    again = observe(found.model, noise(1))
    assert found.observations.keys() == again.keys()
    for name, observation in again.items():
        for field in ("low", "high", "sample"):
            given = getattr(found.observations[name], field)
            np.testing.assert_allclose(given, getattr(observation, field), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("between", [("Relu",), ("Sigmoid",), ("HardSwish",), ()])
def test_a_model_without_gain_stays_the_same_object(between: tuple[str, ...], tmp_path: Path) -> None:
    sizes = SIZES if between in (("Sigmoid",), ("HardSwish",)) else np.ones(16, np.float32)
    model = planted(tmp_path, *between, sizes=sizes)
    found = equalized(model)
    assert (found.model is model, found.layers, found.summary()) == (True, (), "")


def test_a_value_that_others_read_is_left_alone(tmp_path: Path) -> None:
    g = Graph({"x": (1, 3, 16, 16)})
    first = g("Conv", "x", g.weights(16, 3, 1, 1) * SIZES.reshape(-1, 1, 1, 1))
    second = g("Conv", first, g.weights(4, 16, 1, 1) / SIZES.reshape(1, -1, 1, 1))
    model = g.model(tmp_path, second, first)
    assert equalized(model).model is model


QUIET = np.geomspace(1 / 64, 1, 16).astype(np.float32)
"""With a Clip at 3, quiet channels can rise and wide ones meet it."""


def test_a_channel_rises_to_a_quarter_of_the_clip(tmp_path: Path) -> None:
    model = planted(tmp_path, "Clip", depthwise=True, sizes=QUIET)
    found = equalized(model)
    (row,) = found.layers
    _, clip = row["values"]
    before, after = observe(model, noise(1))[clip].high, found.observations[clip].high
    wide = before * equalization.CLIP_MARGIN >= 3
    assert wide.any()
    np.testing.assert_array_equal(after[wide], before[wide])
    assert after[~wide].max() <= 3 / equalization.CLIP_MARGIN + 1e-5
    assert (after[~wide] > before[~wide] * 1.01).sum() >= 8
    louder = noise(4, scale=1.5)  # than what was observed
    assert worst_snr_db(outputs_of(model, louder), outputs_of(found.model, louder)) > 100


def test_what_changes_the_float_outputs_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equalization, "CLIP_MARGIN", 1.0)
    model = planted(tmp_path, "Clip", depthwise=True, sizes=QUIET)
    found = equalized(model, noise(4, count=32, scale=1.1))
    assert [row["undone"] for row in found.layers] == [True]
    assert found.model is model
    assert found.summary() == "0 pairs of layers equalized, 1 undone: the float outputs changed"


def test_channels_that_fire_on_other_samples_only_stay_wide(tmp_path: Path) -> None:
    """They are quiet when observed, so one scale of their own would clip them."""
    model = planted(tmp_path, "Relu")
    loud = noise(2, scale=20.0)
    assert equalized(model, loud).model is model


@pytest.mark.needs_shared
@pytest.mark.parametrize("name", ["efficientnet_lite0", "yolox_nano", "resnet8_cifar10_fp32"])
def test_networks_whose_channels_are_alike_stay_as_they_are(name: str, shared: Path) -> None:
    model, calibration, held_out = opened(name, shared)
    found = equalize(model, observe(model, calibration), held_out, outputs_of(model, held_out))
    assert found.model is model


@pytest.mark.needs_shared
def test_two_planted_pairs_in_efficientnet_lite0(shared: Path) -> None:
    model, calibration, held_out = opened("efficientnet_lite0", shared)
    expected, observations = outputs_of(model, held_out), observe(model, calibration)
    as_it_is = int8_db(model, observations, calibration, held_out, expected)
    linear, clipped = chosen_pairs(model, observations)
    rng = np.random.default_rng(1)
    channels = len(observations[str(linear.values[0].name)].low)
    equalization._rescale(model, linear, np.exp(rng.uniform(-np.log(64), np.log(64), channels)))
    top = observations[str(clipped.values[-1].name)].high
    sizes = np.exp(rng.uniform(0, np.log(64), len(top)))
    equalization._rescale(model, clipped, np.where(top * 1.25 < 6, sizes, 1.0))
    observations = observe(model, calibration)
    bad = int8_db(model, observations, calibration, held_out, expected)
    found = equalize(model, observations, held_out, expected)
    assert [row["undone"] for row in found.layers] == [False, False]
    good = int8_db(found.model, found.observations, calibration, held_out, expected)
    assert bad < 5
    assert good > as_it_is - 2


def opened(name: str, shared: Path) -> tuple[ir.Model, Samples, Samples]:
    """The canonical graph, and 16 photographs twice."""
    card = load_card(CARDS / f"{name}.toml")
    model = open_model(shared / "models" / f"{name}.onnx", card.shapes())
    inputs, _ = signature(model)
    run_passes(model)
    photographs = str(shared / "data" / "coco128" / "train" / "images" / "*[0248].jpg")
    samples = list(load_samples(photographs, inputs, card, 32).arrays)
    return model, samples[::2], samples[1::2]


def chosen_pairs(
    model: ir.Model, observations: Mapping[str, Observation]
) -> tuple[equalization._Pair, equalization._Pair]:
    """The first pair without an op between, and the first wide one of a Clip and a depthwise Conv."""
    pairs = list(equalization._pairs(model))
    linear = next(
        p for p in pairs if len(p.values) == 1 and len(observations[str(p.values[0].name)].low) > 20
    )
    for pair in pairs:
        top = observations[str(pair.values[-1].name)].high
        weights = pair.second.inputs[1]
        assert weights is not None
        assert weights.shape is not None
        if pair.clips and weights.shape[1] == 1 and len(top) > 90 and (top * 1.25 < 6).mean() > 0.3:
            return linear, pair
    raise AssertionError
