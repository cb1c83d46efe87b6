from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from edgekit.compiler.model.channel_axis import CHANNELS_LIMIT
from edgekit.compiler.quantize.observe.observers import (
    SAMPLE_POSITIONS,
    SAMPLE_VALUES,
    Observation,
    Observer,
    channel_axis,
    pool,
    thinned,
)
from edgekit.tensor_spec import Array
from tests.fixtures.models import parse


def _observe(arrays: list[Array], axis: int | None = 1, name: str = "x") -> Observation:
    observer = Observer(name, axis, len(arrays))
    for index, array in enumerate(arrays):
        observer.update(array, f"{index * 0x9E3779B1 % 2**32:08x}")
    return observer.observation()


def _maps(count: int, shape: tuple[int, ...] = (1, 8, 20, 20)) -> list[Array]:
    return [np.random.default_rng(i).standard_normal(shape).astype(np.float32) for i in range(count)]


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_ends_are_exact_and_the_sample_holds_whole_positions(axis: int) -> None:
    arrays = _maps(5, (2, 3, 4, 5))
    seen = _observe(arrays, axis)
    rows = np.concatenate([np.moveaxis(a, axis, -1).reshape(-1, a.shape[axis]) for a in arrays])
    assert np.array_equal(seen.low, rows.min(0))
    assert np.array_equal(seen.high, rows.max(0))
    assert seen.count == len(rows)
    assert seen.axis == axis
    # Small enough to be remembered whole.
    assert sorted(map(tuple, seen.sample)) == sorted(map(tuple, rows))


def test_a_sample_is_spread_over_arrays_and_positions() -> None:
    y, x = np.mgrid[:64, :64].astype(np.float32)
    arrays = [np.stack([np.full_like(x, i), y, x])[None] for i in range(40)]
    seen = _observe(arrays).sample
    assert seen.size == pytest.approx(SAMPLE_VALUES, rel=0.01)
    per_array = np.bincount(seen[:, 0].astype(int), minlength=40)
    assert per_array.max() - per_array.min() <= 1
    for place in (seen[:, 1], seen[:, 2]):
        counts = np.bincount(place.astype(int), minlength=64)
        assert counts.min() > 0.6 * counts.mean()
        assert counts.max() < 1.5 * counts.mean()


@pytest.mark.parametrize("channels", [1, 3, 1000, CHANNELS_LIMIT])
def test_memory_does_not_grow_with_the_arrays(channels: int) -> None:
    array = np.zeros((1, channels, 30), np.float32)
    limit = max(SAMPLE_VALUES, SAMPLE_POSITIONS * channels)
    for count in (1, 7, 300):
        observer = Observer("x", 1, count)
        for index in range(count):
            observer.update(array, f"{index:08x}")
        assert observer.observation().sample.size <= limit


def test_another_name_sees_other_positions() -> None:
    arrays = _maps(2, (1, 2, 200, 200))
    assert np.array_equal(_observe(arrays).sample, _observe(arrays).sample)
    assert not np.array_equal(_observe(arrays).sample, _observe(arrays, name="y").sample)


def test_other_floats_become_float32() -> None:
    for dtype in (np.float16, np.float64):
        seen = _observe([np.linspace(0, 1, 6).reshape(1, 6).astype(dtype)])
        assert seen.low.dtype == seen.sample.dtype == np.float32
        assert seen.high[5] == 1


def test_what_is_not_finite_is_told() -> None:
    for bad, finite in ((np.nan, None), (np.inf, False), (-np.inf, False), (1.0, True)):
        observer = Observer("x", None, 2)
        assert observer.finite is True
        observer.update(np.array([[0, bad, 1]], np.float32), "00000000")
        observer.update(np.zeros((1, 3), np.float32), "00000001")
        assert observer.finite is finite


def test_pool_is_one_channel_with_a_like_part_of_each() -> None:
    large, small = _observe(_maps(4)), _observe([m * 9 for m in _maps(4, (1, 40, 20, 20))])
    both = pool([large, small])
    assert both.low == min(large.low.min(), small.low.min())
    assert both.high == max(large.high.max(), small.high.max())
    assert both.axis is None
    assert both.count == 4 * 400 * 48
    assert both.sample.shape[1] == 1
    assert SAMPLE_VALUES / 2 < both.sample.size <= SAMPLE_VALUES
    quiet = np.isin(both.sample, large.sample).sum()
    assert 0.3 < quiet / both.sample.size < 0.7
    single = pool([large])
    assert single.low.shape == (1,)
    assert pool([single]) is single


def test_thinned_keeps_channels_together() -> None:
    sample = np.arange(1000, dtype=np.float32).reshape(250, 4)
    kept = thinned(sample, 100)
    assert kept.shape == (25, 4)
    assert np.array_equal(kept[1], sample[10])
    assert thinned(sample, 10**6).shape == (250, 4)
    assert thinned(sample, 1).shape == (1, 4)


AXES = """
<ir_version: 8, opset_import: ["": 17]>
axes (float[1,3,8,8] image, float[1,10,16] tokens, float[] scalar, float[1,20000] wide)
    => (float[1,4,8,8] relu, float[1,10,5] logits, float[1,10,16] shifted, float[] doubled,
        float[1,20000] same, float[1,3,8,8] product)
{
    w = Constant<value = float[4,3,1,1] {1,1,1,1,1,1,1,1,1,1,1,1}>()
    conv = Conv(image, w)
    relu = Relu(conv)
    m = ConstantOfShape(shape)
    shape = Constant<value = int64[2] {16, 5}>()
    logits = MatMul(tokens, m)
    moved = Add(tokens, tokens)
    shifted = Relu(moved)
    doubled = Add(scalar, scalar)
    same = Relu(wide)
    m8 = ConstantOfShape(shape8)
    shape8 = Constant<value = int64[2] {8, 8}>()
    turned = Sin(image)
    product = MatMul(turned, m8)
}
"""


def test_channel_axis() -> None:
    model = parse(AXES)
    values = {v.name: v for n in model.graph for v in n.outputs} | {v.name: v for v in model.graph.inputs}
    for name in ("conv", "turned"):
        values[name].shape = ir.Shape([1, 4, 8, 8])
    values["moved"].shape = ir.Shape([1, 10, 16])
    found = {name: channel_axis(value) for name, value in values.items()}
    expected = {
        "image": 1,  # a convolution reads it
        "conv": 1,
        "relu": 1,  # an image by its rank
        "tokens": 2,  # a MatMul reads it
        "logits": 2,
        "moved": 2,
        "turned": 3,  # four dimensions, but a MatMul reads it
        "scalar": None,
        "wide": None,
    }
    assert {name: found[name] for name in expected} == expected
