"""Decoded quantization parameters stand for what ONNX's reference says."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.compiler.lowering.quantization_parameters import quantization_parameters
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array
from tests.compiler.lowering.node_inputs import computed, constant, held, reference

INTEGERS = np.arange(-30, 30, dtype=np.int8).reshape(3, 4, 5)


def drawn(shape: tuple[int, ...]) -> tuple[Array, Array]:
    rng = np.random.default_rng(3)
    scale = np.asarray(rng.uniform(0.01, 1, shape), np.float32)
    return scale, np.asarray(rng.integers(-20, 20, shape), np.int8)


@pytest.mark.parametrize(
    ("shape", "axis", "block_size"),
    [
        ((), 1, 0),
        ((4,), 1, 0),
        ((5,), -1, 0),
        ((3, 2, 5), 1, 2),
        ((3, 4, 3), -1, 2),  # the last block is not full
    ],
)
def test_the_same_reals_as_the_reference(shape: tuple[int, ...], axis: int, block_size: int) -> None:
    scale, zero_point = drawn(shape)
    parameters = quantization_parameters(held(scale), held(zero_point))
    got = parameters.dequantized(INTEGERS, axis, block_size)
    full = parameters.broadcast(INTEGERS.shape, axis, block_size)
    np.testing.assert_array_equal(got, (INTEGERS - full.zero_point).astype(np.float32) * full.scale)
    assert got.dtype == np.float32
    if block_size and INTEGERS.shape[axis] % block_size:
        return  # the reference of onnx takes whole blocks only
    attributes = {"axis": axis} | ({"block_size": block_size} if block_size else {})
    wanted = reference("DequantizeLinear", INTEGERS, scale, zero_point, **attributes)
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_one_element_of_rank_1_is_per_tensor() -> None:
    full = quantization_parameters(constant(0.5, dtype="float32"), None).broadcast((2, 3), 1, 0)
    assert full.scale.shape == full.zero_point.shape == (1, 1)
    assert full.zero_point.dtype == np.int64


def test_computed_parameters_are_refused() -> None:
    for scale, zero_point in ((computed(), None), (constant(1, dtype="float32"), computed())):
        with pytest.raises(Inexpressible) as caught:
            quantization_parameters(scale, zero_point)
        assert caught.value.reason == "the model computes its scale or zero point; they must be constant"
