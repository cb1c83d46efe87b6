"""Block formats against llama.cpp's own Python package, bit for bit."""

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from edgekit.generate.host.readers.language.gguf_blocks import (
    ELEMENT_TYPES,
    ElementType,
    read_packed,
    read_values,
)
from edgekit.tensor_spec import Array

QUANTIZED = {number: kind for number, kind in ELEMENT_TYPES.items() if kind.unpack is not None}
SCALES_AT = {"Q4_0": 1, "Q4_1": 2, "Q5_0": 1, "Q5_1": 2, "Q8_0": 1, "Q4_K": 2, "Q5_K": 2}
"""How many float16 a block begins with; Q6_K ends with one."""


def random_blocks(kind: ElementType, count: int) -> Array:
    """Random bytes, with scales that are finite numbers of usual size."""
    random = np.random.default_rng(7)
    raw = random.integers(0, 256, (count, kind.size_bytes), np.uint8)
    number = SCALES_AT.get(kind.name, 1)
    scales = (random.standard_normal((count, number)) * 0.01).astype("<f2").view(np.uint8)
    if kind.name == "Q6_K":
        raw[:, -2:] = scales
    else:
        raw[:, : 2 * number] = scales
    return raw


@pytest.mark.parametrize("number", QUANTIZED, ids=lambda number: ELEMENT_TYPES[number].name)
def test_values_are_those_of_ggml(number: int) -> None:
    kind = QUANTIZED[number]
    raw = random_blocks(kind, 64)
    shape = (8, 8 * kind.block)
    expected = quants.dequantize(raw.reshape(8, -1), GGMLQuantizationType(number)).reshape(shape)
    found = read_values(kind, raw.reshape(-1), shape)
    assert found.dtype == np.float32
    assert np.array_equal(found, expected)
    packed = read_packed(kind, raw.reshape(-1), shape)
    assert packed.integers.max() < 1 << packed.bits
    assert packed.scales.shape == (8, shape[1] // packed.block)
    assert np.array_equal(packed.values(), expected)


@pytest.mark.parametrize(("number", "dtype"), [(0, "<f4"), (1, "<f2")])
def test_floats_are_read_as_they_are(number: int, dtype: str) -> None:
    values = np.random.default_rng(0).standard_normal((3, 5)).astype(dtype)
    found = read_values(ELEMENT_TYPES[number], np.frombuffer(values.tobytes(), np.uint8), (3, 5))
    assert np.array_equal(found, values.astype(np.float32))


def test_bfloat16_is_the_upper_half_of_a_float32() -> None:
    values = np.array([1.0, -2.5, 3.140625, 0.0], "<f4")
    raw = np.frombuffer((values.view("<u4") >> 16).astype("<u2").tobytes(), np.uint8)
    assert np.array_equal(read_values(ELEMENT_TYPES[30], raw, (4,)), values)


def test_the_numbers_are_those_of_ggml() -> None:
    for number, kind in ELEMENT_TYPES.items():
        assert GGMLQuantizationType(number).name == kind.name
