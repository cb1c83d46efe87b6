"""Operators on each element, in numpy. Floats are computed in float32; the caller rounds.

Semantics: coremltools' operator reference (ops.defs), checked against its value inference if it has one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import erf, sqrt
from typing import Any

import numpy as np

from edgekit_coreml.interpreter.one_node import converted, run_node

Operand = Any
"""An array, a scalar, or a literal of the program (a string, a number)."""


def wide(x: Operand) -> Operand:
    """Convert a narrower float to float32; return any other array unchanged."""
    array = np.asarray(x)
    return converted(array, "float32") if array.dtype == np.float16 else array


def _unary(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: function(wide(x))


def _binary(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: function(wide(x), wide(y))


def sigmoid(x: Operand) -> Operand:
    """Compute 1 / (1 + exp(-x)) without overflow on either side."""
    tail = np.exp(-np.abs(x))
    return np.maximum(tail, x >= 0) / (1 + tail)  # the tail is at most 1


def error_function(x: Operand) -> Operand:
    """Compute erf by ONNX Runtime's kernel; a scalar by Python's ``math.erf``."""
    if x.ndim == 0:
        return np.asarray(erf(float(x)), np.float32)
    return run_node("Erf", [x.astype(np.float32)], {})


def clip(x: Operand, alpha: Operand, beta: Operand) -> Operand:
    return np.clip(wide(x), wide(alpha), wide(beta))


def elu(x: Operand, alpha: Operand) -> Operand:
    x = wide(x)
    return np.where(x >= 0, x, wide(alpha) * np.expm1(np.minimum(x, 0)))


def gelu(x: Operand, mode: str = "EXACT") -> Operand:
    x = wide(x)
    if mode == "EXACT":
        return 0.5 * x * (1 + error_function(x / np.float32(sqrt(2))))
    if mode == "TANH_APPROXIMATION":
        inner = np.float32(sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x**3)
        return 0.5 * x * (1 + np.tanh(inner))
    return x * sigmoid(np.float32(1.702) * x)


def leaky_relu(x: Operand, alpha: Operand) -> Operand:
    x = wide(x)
    return np.where(x >= 0, x, x * wide(alpha))


def prelu(x: Operand, alpha: Operand) -> Operand:
    x = wide(x)
    slope = wide(alpha).reshape(-1, *(1,) * (x.ndim - 2))
    return np.where(x >= 0, x, x * slope)


def sigmoid_hard(x: Operand, alpha: Operand, beta: Operand) -> Operand:
    return np.clip(wide(x) * wide(alpha) + wide(beta), 0, 1)


def log(x: Operand, epsilon: Operand = 0.0) -> Operand:
    return np.log(wide(x) + wide(epsilon))


def inverse(x: Operand, epsilon: Operand = 0.0) -> Operand:
    return 1 / (wide(x) + wide(epsilon))


def rsqrt(x: Operand, epsilon: Operand = 0.0) -> Operand:
    return 1 / np.sqrt(wide(x) + wide(epsilon))


def threshold(x: Operand, alpha: Operand) -> Operand:
    return np.maximum(wide(x), wide(alpha))


def select(cond: Operand, a: Operand, b: Operand) -> Operand:
    return np.where(cond, a, b)


def cast(x: Operand, dtype: str) -> Operand:
    names = {"fp16": "float16", "fp32": "float32"}
    return converted(np.asarray(x), names.get(dtype, dtype))


_UNARY: Mapping[str, Callable[..., Any]] = {
    "abs": np.abs,
    "acos": np.arccos,
    "asin": np.arcsin,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "ceil": np.ceil,
    "cos": np.cos,
    "cosh": np.cosh,
    "erf": error_function,
    "exp": np.exp,
    "exp2": np.exp2,
    "floor": np.floor,
    "identity": lambda x: x,
    "logical_not": np.logical_not,
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "round": np.rint,
    "sigmoid": sigmoid,
    "sign": np.sign,
    "silu": lambda x: x * sigmoid(x),
    "sin": np.sin,
    "sinh": np.sinh,
    "softplus": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "sqrt": np.sqrt,
    "square": np.square,
    "tan": np.tan,
    "tanh": np.tanh,
}
_BINARY: Mapping[str, Callable[..., Any]] = {
    "add": np.add,
    "equal": np.equal,
    "floor_div": np.floor_divide,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "mod": np.mod,
    "mul": np.multiply,
    "not_equal": np.not_equal,
    "pow": np.power,
    "real_div": np.true_divide,
    "sub": np.subtract,
}
_OWN_NAMES = (
    cast, clip, elu, gelu, inverse, leaky_relu, log, prelu, rsqrt, select, sigmoid_hard, threshold,
)  # fmt: skip
"""Kernels that are called what their operator is."""
KERNELS: Mapping[str, Callable[..., Any]] = {
    **{kernel.__name__: kernel for kernel in _OWN_NAMES},
    **{name: _unary(function) for name, function in _UNARY.items()},
    **{name: _binary(function) for name, function in _BINARY.items()},
}
