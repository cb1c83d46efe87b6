"""Activations of transformers: their names, and the float reference of each."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from edgekit.tensor_spec import Array

GELU, GELU_TANH, RELU, SILU = "gelu", "gelu_tanh", "relu", "silu"
"""GELU (Hendrycks and Gimpel 2016), its approximation by tanh, ReLU, and x * sigmoid(x)."""
ACTIVATIONS: Mapping[str, str] = {
    "gelu": GELU, "gelu_new": GELU_TANH, "gelu_pytorch_tanh": GELU_TANH, "relu": RELU, "silu": SILU,
    "swish": SILU,
}  # fmt: skip
"""Name in the files of transformers -> activation."""


def activated(x: Array, kind: str) -> Array:
    """Compute an activation, float32 of any shape."""
    if kind == RELU:
        return np.maximum(x, np.float32(0))
    if kind == SILU:
        with np.errstate(over="ignore"):  # exp(-x) of a large negative x: the quotient is 0, as it should be
            silu: Array = x / (1 + np.exp(-x))
        return silu
    if kind == GELU:
        curve = _error_function(x * np.float32(math.sqrt(0.5)))
    else:
        curve = np.tanh(np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x**3))
    gelu: Array = np.float32(0.5) * x * (1 + curve)
    return gelu


def _error_function(x: Array) -> Array:
    """Compute erf to 1.2e-7 (Numerical Recipes 6.2.2, Chebyshev fit of erfc), which numpy lacks."""
    z = np.abs(x).astype(np.float64)
    t = 1 / (1 + 0.5 * z)
    terms = (
        -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398, 1.48851587,
        -0.82215223, 0.17087277,
    )  # fmt: skip
    series = np.zeros_like(t)
    for term in reversed(terms):
        series = series * t + term
    tail = t * np.exp(-z * z + series)
    erf: Array = np.where(x >= 0, 1 - tail, tail - 1).astype(np.float32)
    return erf
