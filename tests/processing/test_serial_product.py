from __future__ import annotations

import numpy as np
import pytest

from edgekit.processing.serial_product import serial_product
from edgekit.tensor_spec import Array

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("rows", "inputs", "outputs"), [(1, 1, 1), (17, 201, 80), (3000, 201, 80), (3, 2000, 700)]
)
def test_it_is_the_product(rows: int, inputs: int, outputs: int) -> None:
    a, b = RNG.standard_normal((rows, inputs)), RNG.standard_normal((inputs, outputs))
    np.testing.assert_allclose(serial_product(a, b), a @ b, rtol=1e-12, atol=1e-11)


def test_overlapping_rows() -> None:
    windows = np.lib.stride_tricks.sliding_window_view(RNG.standard_normal(5000), 400)[::3]
    matrix = RNG.standard_normal((400, 32))
    expected = windows.copy() @ matrix
    np.testing.assert_allclose(serial_product(windows, matrix), expected, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(6000, 201, 80), (40, 512, 512), (9, 1024, 1024)])
def test_no_product_is_large_enough_for_another_thread(
    monkeypatch: pytest.MonkeyPatch, rows: int, inputs: int, outputs: int
) -> None:
    """OpenBLAS divides a product of more multiplications among threads; one row it never divides."""
    shapes = []

    def matmul(a: Array, b: Array, out: Array) -> None:
        shapes.append(a.shape)
        np.multiply(np.dot(a, b), 1, out=out)

    a, b = RNG.standard_normal((rows, inputs)), RNG.standard_normal((inputs, outputs))
    with monkeypatch.context() as patch:
        patch.setattr(np, "matmul", matmul)
        serial_product(a, b)
    assert sum(shape[0] for shape in shapes) == rows
    assert all(shape[0] == 1 or shape[0] * inputs * outputs <= 4 * 65536 for shape in shapes)
