from __future__ import annotations

import sys
import time

import numpy as np
import pytest

from edgekit.processing.serial_product import serial_product

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


@pytest.mark.skipif(sys.platform == "win32", reason="its clocks of CPU time count 16 ms")
def test_no_other_thread_computes() -> None:
    a, b = RNG.standard_normal((6000, 201)), RNG.standard_normal((201, 80))
    elsewhere = []
    for _ in range(5):
        whole, own = time.process_time(), time.thread_time()
        for _ in range(5):
            serial_product(a, b)
        whole, own = time.process_time() - whole, time.thread_time() - own
        elsewhere.append((whole - own) / own)
    assert min(elsewhere) < 0.1
