"""Scales, zero points and rounding: the properties that hold for every range, and ONNX's own arithmetic."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from edgekit.compiler.model.node_evaluation import session_options
from edgekit.compiler.quantize.numerics import (
    SMALLEST_SCALE,
    affine,
    channel_affine,
    channel_noise,
    choose_range,
    dequantize,
    fake_quantize,
    quantize,
    stored_range,
)
from edgekit.compiler.quantize.observe.observers import Observation
from edgekit.compiler.quantize.recipe import Affine, RangeRule
from edgekit.target.quant_rules import Dtype
from edgekit.tensor_spec import Array

DTYPES: tuple[Dtype, ...] = ("int8", "uint8", "int16")
dtypes = st.sampled_from(DTYPES)
floats = st.floats(-1e6, 1e6, width=32)
ranges = st.tuples(floats, floats).map(lambda ends: (min(ends), max(ends)))


def _values(seed: int, size: int = 2000, scale: float = 1.0) -> Array:
    return (np.random.default_rng(seed).standard_normal(size) * scale).astype(np.float32)


def _floats(values: list[float]) -> Array:
    return np.array(values, np.float32)


def _observed(sample: Array, axis: int | None = 1) -> Observation:
    sample = sample.astype(np.float32)
    return Observation(sample.min(0), sample.max(0), sample, axis, len(sample))


def test_a_scalar_stays_an_array() -> None:
    by = affine(0.0, 2.0, "uint8")
    stored = quantize(np.array(1.0, np.float32), by)
    assert isinstance(stored, np.ndarray)
    assert (stored.shape, stored.dtype.name) == ((), "uint8")
    for real in (dequantize(stored, by), fake_quantize(np.array(1.0, np.float32), by)):
        assert isinstance(real, np.ndarray)
        assert (real.shape, real.dtype.name) == ((), "float32")
        assert abs(real - 1) <= by.scale / 2


@given(ranges, dtypes, st.booleans(), st.booleans())
def test_zero_is_exact(ends: tuple[float, float], dtype: Dtype, symmetric: bool, narrow: bool) -> None:
    by = affine(*ends, dtype, symmetric, narrow=narrow)
    stored = quantize(np.zeros(1, np.float32), by)
    assert stored == by.zero_point
    assert dequantize(stored, by) == 0
    assert by.scale.dtype == np.float32
    assert by.zero_point.dtype == np.dtype(dtype)
    assert by.scale >= np.finfo(np.float32).tiny
    bottom, top = stored_range(dtype, narrow)
    assert bottom <= by.zero_point <= top


@given(ranges, dtypes, st.booleans(), st.booleans())
def test_error_is_at_most_half_a_scale_inside_of_the_range(
    ends: tuple[float, float], dtype: Dtype, symmetric: bool, narrow: bool
) -> None:
    low, high = ends
    by = affine(low, high, dtype, symmetric, narrow=narrow)
    x = np.linspace(low, high, 999).astype(np.float32)
    error = np.abs(fake_quantize(x, by).astype(np.float64) - x)
    assert error.max() <= float(by.scale) * 0.5 + np.abs(x).max() * 2.0**-22


@given(ranges, dtypes, st.booleans())
def test_quantizing_keeps_the_order(ends: tuple[float, float], dtype: Dtype, symmetric: bool) -> None:
    by = affine(*ends, dtype, symmetric)
    width = ends[1] - ends[0] + 1
    x = np.linspace(ends[0] - width, ends[1] + width, 999).astype(np.float32)
    assert (np.diff(quantize(x, by).astype(np.int64)) >= 0).all()
    assert (np.diff(fake_quantize(x, by)) >= 0).all()


@given(ranges, dtypes, st.booleans(), st.integers(0, 9))
def test_equal_channels_are_as_one_tensor(
    ends: tuple[float, float], dtype: Dtype, symmetric: bool, seed: int
) -> None:
    x = _values(seed, 60, ends[1] - ends[0] + 1).reshape(3, 4, 5)
    one = affine(*ends, dtype, symmetric)
    each = affine([ends[0]] * 4, [ends[1]] * 4, dtype, symmetric, axis=1)
    assert np.array_equal(quantize(x, each), quantize(x, one))
    assert np.array_equal(fake_quantize(x, each), fake_quantize(x, one))
    assert np.array_equal(dequantize(quantize(x, each), each), fake_quantize(x, one))


def test_known_scales() -> None:
    cases = [
        (affine(-1, 1, "int8", symmetric=True), 1 / 127, 0),
        (affine(-1, 3, "uint8", symmetric=True), 3 / 127, 128),
        (affine(0, 255, "uint8"), 1, 0),
        (affine(0, 255, "int8"), 1, -128),
        (affine(-254, 0, "int8", narrow=True), 1, 127),
        (affine(2, 255, "uint8"), 1, 0),
        (affine(-32767, 1, "int16", symmetric=True), 1, 0),
    ]
    for by, scale, zero in cases:
        assert float(by.scale) == pytest.approx(scale)
        assert int(by.zero_point) == zero


def test_weights_stay_within_127() -> None:
    weights = _values(0, 640).reshape(8, 80)
    by = affine(weights.min(1), weights.max(1), "int8", symmetric=True, axis=0)
    stored = quantize(weights, by)
    assert stored.min() >= -127
    assert np.abs(stored.astype(int)).max(1).tolist() == [127] * 8
    narrow = affine(-1, 0.9, "int8", narrow=True)
    assert quantize(_floats([-1, 0.9]), narrow).tolist() == [-127, 127]


def test_empty_and_tiny_ranges() -> None:
    assert float(affine(0, 0, "int8").scale) == 1
    tiny = affine(-1e-44, 1e-44, "int8")
    assert float(tiny.scale) == SMALLEST_SCALE
    assert dequantize(quantize(_floats([1e-44]), tiny), tiny) == 0
    mixed = affine([0, -1, 0], [0, 1, 0.5], "int8", symmetric=True, axis=0)
    assert mixed.scale.tolist() == pytest.approx([1 / 127, 1 / 127, 0.5 / 127])
    huge = np.finfo(np.float32).max
    assert np.isfinite(affine(-huge, huge, "int8").scale)


@cache
def _engine(op: str, dtype: Dtype, axis: int | None) -> object:
    """One QuantizeLinear or DequantizeLinear, its scale and zero point fed, on ONNX Runtime."""
    import onnxruntime

    integers = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "int16": TensorProto.INT16}[dtype]
    into, out = (TensorProto.FLOAT, integers) if op[0] == "Q" else (integers, TensorProto.FLOAT)
    shape = [] if axis is None else ["c"]
    node = helper.make_node(op, ["x", "s", "z"], ["y"])
    if axis is not None:
        node.attribute.append(helper.make_attribute("axis", axis))
    graph = helper.make_graph(
        [node],
        "one",
        [
            helper.make_tensor_value_info("x", into, ["a", "b", "c", "d"][: 3 if axis else 1]),
            helper.make_tensor_value_info("s", TensorProto.FLOAT, shape),
            helper.make_tensor_value_info("z", integers, shape),
        ],
        [helper.make_tensor_value_info("y", out, None)],
    )
    model = onnx.helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    options = session_options(1, optimize=False)
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _by_engine(op: str, x: Array, by: Affine) -> Array:
    session = _engine(op, by.dtype, by.axis)
    result: Array = session.run(None, {"x": x, "s": by.scale, "z": by.zero_point})[0]  # type: ignore[attr-defined]
    return result


@pytest.mark.needs_ort_after_1_23
@given(ranges, dtypes, st.booleans(), st.integers(0, 2**32 - 1))
def test_agrees_bit_for_bit_with_onnx(
    ends: tuple[float, float], dtype: Dtype, symmetric: bool, seed: int
) -> None:
    by = affine(*ends, dtype, symmetric)
    rng = np.random.default_rng(seed)
    halves = (rng.integers(-300, 300, 64) + 0.5).astype(np.float32) * by.scale
    x = np.concatenate([_values(seed, 67, ends[1] - ends[0] + 1), halves]).astype(np.float32)
    stored = quantize(x, by)
    assert np.array_equal(stored, _by_engine("QuantizeLinear", x, by))
    back = dequantize(stored, by)
    assert np.array_equal(back, _by_engine("DequantizeLinear", stored, by))
    assert np.array_equal(back, fake_quantize(x, by))


@pytest.mark.needs_ort_after_1_23
@pytest.mark.parametrize("dtype", DTYPES)
def test_channels_agree_bit_for_bit_with_onnx(dtype: Dtype) -> None:
    x = _values(1, 210).reshape(2, 7, 15)
    by = affine(x.min((0, 2)), x.max((0, 2)), dtype, axis=1)
    stored = quantize(x, by)
    assert np.array_equal(stored, _by_engine("QuantizeLinear", x, by))
    assert np.array_equal(dequantize(stored, by), _by_engine("DequantizeLinear", stored, by))


def test_halves_go_to_even() -> None:
    by = affine(-128, 127, "int8")
    assert quantize(_floats([0.5, 1.5, 2.5, -0.5, -1.5, 127.5, -128.5]), by).tolist() == [
        *(0, 2, 2, 0, -2, 127, -128),
    ]


def test_biases_are_exact_beyond_float32() -> None:
    by = Affine(np.float32(2.0**-20) * np.ones(2, np.float32), np.zeros(2, np.int32), "int32", 0)
    x = _floats([1000.0001, -1e9])
    assert quantize(x, by).tolist() == [round(float(x[0]) * 2**20), -(2**31)]


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(("rule", "power"), [("l2", 2), ("l4", 4)])
def test_a_chosen_range_has_less_error_than_all_that_was_observed(
    rule: str, power: int, symmetric: bool
) -> None:
    sample = np.random.default_rng(3).standard_t(3, 16_000).reshape(-1, 8).astype(np.float32)
    observation = _observed(sample)

    def error(by: Affine) -> float:
        return float((np.abs(fake_quantize(sample, by).astype(np.float64) - sample) ** power).mean())

    everything = choose_range(observation, "minmax", "int8", symmetric)
    chosen = choose_range(observation, rule, "int8", symmetric)  # type: ignore[arg-type]
    low, high = float(sample.min()), float(sample.max())
    grid = np.linspace(0.02, 1, 50)
    best = min(
        error(affine(low * a, high * b, "int8", symmetric))
        for a in grid
        for b in (grid if not symmetric else [a])
    )
    assert error(chosen) <= error(everything)
    assert error(chosen) < error(everything) or rule == "l4"  # the fourth power spares few outliers
    assert error(chosen) <= 1.1 * best


@pytest.mark.parametrize("rule", ["l2", "l4"])
def test_an_outlier_that_the_sample_missed_has_its_price(rule: RangeRule) -> None:
    sample = _values(4, 8000).reshape(-1, 8)
    seen = _observed(sample)
    high = seen.high.copy()
    high[0] = 400
    missed = Observation(seen.low, high, sample, 1, 10**4)
    rare = Observation(seen.low, high, sample, 1, 10**12)
    narrow = choose_range(seen, rule, "int8", symmetric=False).scale
    assert choose_range(missed, rule, "int8", symmetric=False).scale > 20 * narrow
    assert choose_range(rare, rule, "int8", symmetric=False).scale < 20 * narrow


@pytest.mark.parametrize("symmetric", [False, True])
def test_one_value_in_a_hundred_million_takes_no_bit_from_all_others(symmetric: bool) -> None:
    """The fourth power alone would keep it, at 80 times the step."""
    sample = _values(4, 8000).reshape(-1, 8)
    seen = _observed(sample)
    high = seen.high.copy()
    high[0] = 400
    far = Observation(seen.low, high, sample, 1, 10**8)
    narrow, found = (choose_range(each, "l4", "int8", symmetric) for each in (seen, far))
    assert narrow.scale / 2 < found.scale < 2 * narrow.scale
    assert found.scale == choose_range(far, "l2", "int8", symmetric).scale


def test_the_error_is_measured_behind_the_activation() -> None:
    def silu(x: Array) -> Array:
        result: Array = x / (1 + np.exp(-x))
        return result

    sample = _values(5, 16_000, scale=8).reshape(-1, 4)
    plain = choose_range(_observed(sample), "l2", "int8", symmetric=False)
    behind = choose_range(_observed(sample), "l2", "int8", symmetric=False, after=silu)
    # What SiLU sends to nearly zero needs no room: the low end moves up.
    assert int(behind.zero_point) < int(plain.zero_point) - 20
    error = [np.square(silu(fake_quantize(sample, by)) - silu(sample)).mean() for by in (plain, behind)]
    assert error[1] < 0.5 * error[0]


@pytest.mark.parametrize("rule", ["minmax", "l2", "l4"])
def test_a_constant_tensor_has_a_range(rule: str) -> None:
    for constant in (0.0, 3.0, -1e-30):
        by = choose_range(_observed(np.full((10, 3), constant)), rule, "int8", symmetric=False)  # type: ignore[arg-type]
        assert float(by.scale) >= SMALLEST_SCALE
        assert abs(float(dequantize(quantize(_floats([constant]), by), by)[0]) - constant) <= 0.02


def _uneven() -> Observation:
    sample = _values(6, 16 * 500).reshape(-1, 16) * np.geomspace(0.01, 30, 16, dtype=np.float32)
    return _observed(np.maximum(sample, -0.2 * np.abs(sample).max(0)))


def test_a_scale_for_each_channel_saves_the_quiet_ones() -> None:
    observation = _uneven()
    whole = choose_range(observation, "minmax", "uint8", symmetric=False)
    each = affine(observation.low, observation.high, "uint8", axis=observation.axis)
    shared = channel_affine(observation, "uint8")
    assert len(np.unique(shared.zero_point)) == 1
    assert shared.axis == each.axis == 1
    assert channel_noise(observation, whole) > 0.2
    assert channel_noise(observation, each) < 1e-3
    assert channel_noise(observation, shared) < 1e-3
    signed = channel_affine(observation, "int8")
    assert np.array_equal(signed.scale, shared.scale)
    assert np.array_equal(signed.zero_point.astype(int) + 128, shared.zero_point)


def test_noise_of_a_channel_counts_at_most_one_and_a_constant_one_nothing() -> None:
    sample = np.stack([np.full(100, 3.3), np.zeros(100), _values(7, 100) * 1e-6], 1)
    by = affine(-100, 100, "int8")
    assert channel_noise(_observed(sample), by) == pytest.approx(1 / 3, abs=1e-3)
