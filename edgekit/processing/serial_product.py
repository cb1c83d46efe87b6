"""Products of matrices on one thread.

numpy's OpenBLAS multiplies on all cores from 262,144 multiplications on (interface/gemm.c: SMP_THRESHOLD_MIN
times GEMM_MULTITHREAD_THRESHOLD), and its threads wait for each other busily. With other processes on the
cores, that took more CPU time than all else of a spectrogram. tests/benchmarks/bench_speech.py has the time.
"""

from __future__ import annotations

import numpy as np

from edgekit.tensor_spec import Array

SERIAL_MULTIPLICATIONS = 4 * 65536


def serial_product(rows: Array, matrix: Array) -> Array:
    """Multiply some rows at a time, few enough for one thread.

    Args:
        rows: float64 [rows, inputs]; may overlap in memory.
        matrix: float64 [inputs, outputs].

    Returns:
        float64 [rows, outputs].
    """
    step = max(1, SERIAL_MULTIPLICATIONS // matrix.size)
    out = np.empty((len(rows), matrix.shape[1]))
    for first in range(0, len(rows), step):
        np.matmul(rows[first : first + step], matrix, out=out[first : first + step])
    return out
