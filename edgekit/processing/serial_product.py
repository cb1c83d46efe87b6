"""Products of matrices on one thread.

numpy's OpenBLAS multiplies on all cores from 262,144 multiplications on (interface/gemm.c: SMP_THRESHOLD_MIN
times GEMM_MULTITHREAD_THRESHOLD), and its threads wait for each other busily. With other processes on the
cores, that took more CPU time than all else of a spectrogram. tests/benchmarks/bench_speech.py has the time.
"""

from __future__ import annotations

import numpy as np

from edgekit.tensor_spec import Array

SERIAL_MULTIPLICATIONS = 4 * 65536
ROWS = 8
"""Rows that OpenBLAS's kernels take at once (dgemm_kernel_*.c). They may round the rest in another way."""


def serial_product(rows: Array, matrix: Array) -> Array:
    """Multiply some rows at a time, few enough for one thread.

    A row has the same result whatever the number of rows and its place among them, unless the matrix has more
    than 32,768 values.

    Args:
        rows: float64 [rows, inputs]; may overlap in memory.
        matrix: float64 [inputs, outputs].

    Returns:
        float64 [rows, outputs].
    """
    step = max(1, SERIAL_MULTIPLICATIONS // matrix.size)
    if step >= ROWS:
        step -= step % ROWS
    out = np.empty((len(rows), matrix.shape[1]))
    whole = len(rows) - (len(rows) % ROWS if step >= ROWS else 0)
    for first in range(0, whole, step):
        end = min(first + step, whole)
        # numpy before 2.3 multiplies rows that overlap in memory without OpenBLAS, with other roundings.
        np.matmul(np.ascontiguousarray(rows[first:end]), matrix, out=out[first:end])
    if whole < len(rows):
        last = np.zeros((ROWS, len(matrix)))
        last[: len(rows) - whole] = rows[whole:]
        out[whole:] = (last @ matrix)[: len(rows) - whole]
    return out
