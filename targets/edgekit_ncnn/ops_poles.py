"""Div, Reciprocal and Log. At 0 ncnn's layers return NaN on x86-64, where ONNX has an infinity.

ncnn refines an approximate quotient, so 0 and infinity as divisors become NaN; its logarithm of 0 is NaN too.
Where the graph shows that the argument is above zero, one layer does; else the infinities are added to it.
-0 counts as 0: its reciprocal is plus infinity. A number over infinity stays NaN.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from edgekit_ncnn.builder import Builder, Value, lower
from edgekit_ncnn.ops_math import (
    ABS,
    ADD,
    DIV,
    FLOOR,
    LARGEST,
    LOG,
    MAX,
    MIN,
    MUL,
    RECIPROCAL,
    RSUB,
    SIGN,
    SQRT,
    SUB,
    binary,
    elementwise,
    unary,
)

SMALLEST = float(np.finfo(np.float32).tiny)
"""Smallest normal float32; ncnn computes with less as with 0."""
FROM_ZERO = frozenset(
    ("Abs", "Exp", "HardSigmoid", "ReduceL1", "ReduceL2", "ReduceSumSquare", "Relu", "Sigmoid", "Softmax",
     "Softplus")
)  # fmt: skip
"""Operators whose results are at least 0."""
KEEPS_SIGN = frozenset(
    ("Cast", "Expand", "Flatten", "Gather", "Identity", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum",
     "Reshape", "Slice", "Sqrt", "Squeeze", "Transpose", "Unsqueeze")
)  # fmt: skip
"""Operators whose results are above 0 if their first input is."""
UNKNOWN, FROM_0, ABOVE_0 = 0, 1, 2
DEPTH = 12
"""Nodes that are followed backwards."""


@lower("Div", since=14)
def div(b: Builder, A: Value, B: Value) -> Value:
    """BinaryOp; with the infinities of zeros in a divisor that may be 0."""
    assert b.node is not None
    if _is_away_from_zero(b.node.inputs[1], B):
        return binary(b, A, B, DIV)
    zeros = _zeros(b, B)
    quotient = binary(b, A, _divisor(b, B, zeros), DIV)
    return binary(b, quotient, binary(b, unary(b, A, SIGN), _infinite(b, zeros), MUL), ADD)


@lower("Reciprocal", since=13)
def reciprocal(b: Builder, X: Value) -> Value:
    """UnaryOp; with the infinities of zeros in an input that may be 0."""
    assert b.node is not None
    if _is_away_from_zero(b.node.inputs[0], X):
        return unary(b, X, RECIPROCAL)
    zeros = _zeros(b, X)
    return binary(b, unary(b, _divisor(b, X, zeros), RECIPROCAL), _infinite(b, zeros), ADD)


@lower("Log", since=13)
def log(b: Builder, input: Value) -> Value:
    """UnaryOp; with the infinities of 0 and of infinity, and the NaN of numbers below, for such inputs."""
    assert b.node is not None
    if _is_away_from_zero(b.node.inputs[0], input):
        return unary(b, input, LOG)
    zero, largest = b.constant(np.array(0.0)), b.constant(np.array(LARGEST))
    zeros = _zeros(b, binary(b, input, zero, MAX))
    finite = unary(b, binary(b, input, zeros, ADD), LOG)
    above = binary(b, binary(b, input, largest, MAX), largest, SUB)  # infinity for infinity, else 0
    below = unary(b, binary(b, input, zero, MIN), SQRT)  # NaN below 0, else 0
    return binary(b, binary(b, binary(b, finite, _infinite(b, zeros), SUB), above, ADD), below, ADD)


def _divisor(b: Builder, x: Value, zeros: Value) -> Value:
    """Return 1 in place of 0. A NaN stays."""
    return binary(b, x, zeros, ADD)


def _zeros(b: Builder, x: Value) -> Value:
    scaled = binary(b, unary(b, x, ABS), b.constant(np.array(1 / SMALLEST)), MUL)
    others = unary(b, elementwise(b, "Clip", scaled, {0: 0.0, 1: 1.0}), FLOOR)
    return binary(b, others, b.constant(np.array(1.0)), RSUB)


def _infinite(b: Builder, zeros: Value) -> Value:
    largest = b.constant(np.array(LARGEST))
    return binary(b, binary(b, zeros, largest, MUL), largest, MUL)


def _is_away_from_zero(value: ir.Value | None, handle: Value) -> bool:
    if handle.const is not None:
        return bool((np.abs(np.asarray(handle.const)) >= SMALLEST).all())
    return _sign(value, DEPTH) == ABOVE_0


def _sign(value: ir.Value | None, depth: int) -> int:
    """Return what a graph shows of a value: UNKNOWN, FROM_0 or ABOVE_0.

    Sums of positive numbers are above 0; a single Exp or Sigmoid is not, because it may underflow.
    """
    if value is None or depth == 0:
        return UNKNOWN
    if value.const_value is not None:
        low = value.const_value.numpy().min(initial=np.inf)
        return ABOVE_0 if low >= SMALLEST else FROM_0 if low >= 0 else UNKNOWN
    node = value.producer()
    if node is None:
        return UNKNOWN
    if node.op_type in KEEPS_SIGN:
        return _sign(node.inputs[0], depth - 1)
    if node.op_type == "Clip" and len(node.inputs) > 1:
        return max(_sign(node.inputs[0], depth - 1), _sign(node.inputs[1], depth - 1))
    if node.op_type == "Mul" and node.inputs[0] is node.inputs[1]:
        return FROM_0
    if node.op_type in ("Add", "Sum", "Max", "Min", "Mul", "Div"):
        signs = [_sign(read, depth - 1) for read in node.inputs]
        lowest, highest = min(signs), max(signs)
        if node.op_type == "Max" or (lowest and node.op_type in ("Add", "Sum")):
            return highest
        return lowest
    return FROM_0 if node.op_type in FROM_ZERO else UNKNOWN
