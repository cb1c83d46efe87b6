"""Elementwise ops: UnaryOp, BinaryOp and the activations, which are fused into the layer before them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgekit.compiler.lowering.activation_parameters import batch_norm_factors
from edgekit.compiler.model.rewriting import producer_of
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array
from edgekit_ncnn.builder import AXES_LIMIT, Builder, Shape, Value, lower, natural
from edgekit_ncnn.network import Param

UNARY = {
    "Abs": 0, "Neg": 1, "Floor": 2, "Ceil": 3, "Sqrt": 5, "Sin": 9, "Cos": 10, "Tan": 11,
    "Asin": 12, "Acos": 13, "Atan": 14, "Tanh": 16, "Round": 18, "Sign": 20, "Sinh": 22,
    "Asinh": 23, "Cosh": 24, "Acosh": 25, "Atanh": 26,
}  # fmt: skip
"""ONNX op -> operation of UnaryOp: src/layer/unaryop.h."""
ADD, SUB, MUL, DIV, MAX, MIN, POW, RSUB, RDIV, RPOW, FMOD = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12
"""Operations of BinaryOp: src/layer/binaryop.h."""
ABS, NEG, FLOOR, SQUARE, SQRT, EXP, LOG, RECIPROCAL, SIGN, LOG1P = 0, 1, 2, 4, 5, 7, 8, 15, 20, 27
"""Operations of UnaryOp."""
MOST_FACTORS = 8
"""Largest exponent that is written as products."""
REVERSED = {ADD: ADD, SUB: RSUB, MUL: MUL, DIV: RDIV, MAX: MAX, MIN: MIN, POW: RPOW}
FUSES_ACTIVATION = frozenset(
    ("Convolution", "Convolution1D", "ConvolutionDepthWise", "Deconvolution", "InnerProduct")
)
ACTIVATION, ACTIVATION_PARAMS = 9, 10
"""Numbers of their parameters."""
RELU, LEAKY_RELU, CLIP, SIGMOID, HARD_SWISH = 1, 2, 3, 4, 6
"""Types of fused activations: src/layer/fused_activation.h."""
LARGEST = float(np.finfo(np.float32).max)


def elementwise(b: Builder, kind: str, x: Value, params: Mapping[int, Param] | None = None) -> Value:
    """Emit a layer that keeps the shape of its blob."""
    stored = x.stored or natural(x.shape)
    return b.reshape(b.emit(kind, [b.blob(x, stored)], stored, params), x.shape)


def activated(b: Builder, x: Value, fused: int, fused_params: Sequence[float], kind: str,
              params: dict[int, Param]) -> Value:  # fmt: skip
    """Fuse an activation into the layer that writes ``x``, or emit it as a layer."""
    writer = b.writer(x)
    if (
        writer is not None
        and writer.kind in FUSES_ACTIVATION
        and ACTIVATION not in writer.params
        and b.is_only_reader()
    ):
        writer.params[ACTIVATION] = fused
        if fused_params:
            writer.params[ACTIVATION_PARAMS] = list(fused_params)
        return x
    return elementwise(b, kind, x, params)


def unary(b: Builder, x: Value, operation: int) -> Value:
    return elementwise(b, "UnaryOp", x, {0: operation})


def binary(b: Builder, x: Value, y: Value, operation: int) -> Value:
    """Emit a BinaryOp of two values that broadcast."""
    shape = tuple(np.broadcast_shapes(x.shape, y.shape))
    for one, other, code in ((x, y, operation), (y, x, REVERSED.get(operation, -1))):
        if other.const is not None and other.size == 1 and one.shape == shape and code >= 0:
            number = float(np.asarray(other.const).ravel()[0])
            if np.isfinite(number):
                return elementwise(b, "BinaryOp", one, {0: code, 1: 1, 2: number})
    stored, of_x, of_y = _common(x, y, shape)
    return b.reshape(b.emit("BinaryOp", [b.blob(x, of_x), b.blob(y, of_y)], stored, {0: operation}), shape)


def _common(x: Value, y: Value, shape: Shape) -> tuple[Shape, Shape, Shape]:
    """Return the blob shapes of the result and of both operands, which are 1 along axes that broadcast."""
    if x.shape == y.shape:
        stored = x.stored or y.stored or natural(shape)
        return stored, stored, stored
    plain = natural(shape)
    rank, cut = len(shape), len(shape) - len(plain)
    full = [(*(1,) * (rank - v.rank), *v.shape) for v in (x, y)]
    if shape[cut:] == plain:
        return plain, full[0][cut:], full[1][cut:]
    groups: list[list[int]] = []
    kinds: list[tuple[bool, bool]] = []
    for axis, size in enumerate(shape):
        kind = (full[0][axis] == size, full[1][axis] == size)
        if groups and (kinds[-1] == kind or size == 1):
            groups[-1].append(axis)
        else:
            groups.append([axis])
            kinds.append(kind)
    if len(groups) > AXES_LIMIT:
        raise Inexpressible(f"its inputs broadcast along more than {AXES_LIMIT} groups of axes")
    sizes = [tuple(int(np.prod([v[a] for a in group])) for group in groups) for v in (shape, *full)]
    return sizes[0], sizes[1], sizes[2]


@lower.family(UNARY, since=6, doc="UnaryOp.")
def _unary(operation: int, b: Builder, X: Value) -> Value:
    return unary(b, X, operation)


@lower.family({"Add": ADD, "Sub": SUB}, since=13, doc="BinaryOp.")
def _binary(operation: int, b: Builder, A: Value, B: Value) -> Value:
    return binary(b, A, B, operation)


@lower("Exp", since=13)
def exp(b: Builder, input: Value) -> Value:
    """Compute the square of exp(x / 2). ncnn's Exp ends at 2.4e38, where the result should be infinite."""
    half = binary(b, input, b.constant(np.array(0.5)), MUL)
    return unary(b, unary(b, half, EXP), SQUARE)


@lower("Pow", since=15)
def pow_(b: Builder, X: Value, Y: Value) -> Value:
    """Emit products for small integers, Sqrt for 0.5, or BinaryOp for a constant base above zero."""
    if X.const is not None and (np.asarray(X.const) > 0).all():
        return binary(b, X, Y, POW)
    exponent = float(np.asarray(Y.const).ravel()[0]) if Y.const is not None and Y.size == 1 else np.nan
    if exponent == 0.5:
        return b.reshape(unary(b, X, SQRT), b.out_shape())
    if not 1 <= exponent <= MOST_FACTORS or exponent != int(exponent):
        raise Inexpressible(
            "ncnn's Pow is right for bases above zero only; it needs an exponent of 0.5, 1, 2 ... 8"
        )
    result = X
    for _ in range(int(exponent) - 1):
        result = unary(b, X, SQUARE) if result is X else binary(b, result, X, MUL)
    return b.reshape(result, b.out_shape())


@lower("Mul", since=14)
def mul(b: Builder, A: Value, B: Value) -> Value:
    """BinaryOp, or Swish for x * Sigmoid(x)."""
    assert b.node is not None
    for x, other, handle in ((0, 1, A), (1, 0, B)):
        sigmoid = producer_of(b.node.inputs[other], "Sigmoid")
        if sigmoid is not None and sigmoid.inputs[0] is b.node.inputs[x]:
            return elementwise(b, "Swish", handle)
    return binary(b, A, B, MUL)


@lower("Mod", since=13)
def mod(b: Builder, A: Value, B: Value, *, fmod: int = 0) -> Value:
    """BinaryOp; floats have fmod only."""
    return binary(b, A, B, FMOD)


@lower.family({"Max": MAX, "Min": MIN, "Sum": ADD}, since=13, doc="BinaryOp.")
def _variadic(operation: int, b: Builder, *data_0: Value) -> Value:
    total = data_0[0]
    for value in data_0[1:]:
        total = binary(b, total, value, operation)
    return total


@lower("Mean", since=13)
def mean(b: Builder, *data_0: Value) -> Value:
    """BinaryOp."""
    return binary(b, _variadic(ADD, b, *data_0), b.constant(np.array(1 / len(data_0))), MUL)


@lower("Relu", since=14)
def relu(b: Builder, X: Value) -> Value:
    """ReLU."""
    return activated(b, X, RELU, [], "ReLU", {})


@lower("LeakyRelu", since=16)
def leaky_relu(b: Builder, X: Value, *, alpha: float = 0.01) -> Value:
    """ReLU with a slope."""
    return activated(b, X, LEAKY_RELU, [float(alpha)], "ReLU", {0: float(alpha)})


@lower("PRelu", since=16)
def p_relu(b: Builder, X: Value, slope: Value) -> Value:
    """PReLU with a slope for each channel, else max(x, 0) + slope * min(x, 0)."""
    stored = natural(X.shape)
    channels = (
        slope.size == stored[0] and slope.rank >= len(stored) and slope.shape[-len(stored)] == slope.size
    )
    if slope.const is not None and len(stored) == 3 and (slope.size == 1 or channels):
        weights = np.asarray(slope.const).ravel()
        result = b.emit("PReLU", [b.blob(X, stored)], stored, {0: slope.size}, [weights])
        return b.reshape(result, X.shape)
    zero = b.constant(np.zeros(()))
    return binary(b, binary(b, X, zero, MAX), binary(b, binary(b, X, zero, MIN), slope, MUL), ADD)


@lower("Clip", since=13)
def clip(b: Builder, input: Value, min: Value | None = None, max: Value | None = None) -> Value:
    """Emit Clip, or BinaryOp if the model computes a bound. A lower bound of 0 alone becomes ReLU."""
    low, high = (_bound(value, default) for value, default in ((min, -LARGEST), (max, LARGEST)))
    if isinstance(low, float) and isinstance(high, float):
        low = high if low > high else low
        if (low, high) == (0.0, LARGEST):
            return activated(b, input, RELU, [], "ReLU", {})
        return activated(b, input, CLIP, [low, high], "Clip", {0: low, 1: high})
    clipped = input
    for bound, operation in ((min, MAX), (max, MIN)):
        clipped = binary(b, clipped, bound, operation) if bound is not None else clipped
    return clipped


def _bound(value: Value | None, default: float) -> float | None:
    if value is None:
        return default
    return None if value.const is None else float(np.clip(value.const, -LARGEST, LARGEST).ravel()[0])


@lower("Sigmoid", since=13)
def sigmoid(b: Builder, X: Value) -> Value:
    """Emit Sigmoid, or fuse it into the layer before it."""
    return activated(b, X, SIGMOID, [], "Sigmoid", {})


@lower("HardSigmoid", since=6)
def hard_sigmoid(b: Builder, X: Value, *, alpha: float = 0.2, beta: float = 0.5) -> Value:
    """HardSigmoid."""
    return elementwise(b, "HardSigmoid", X, {0: float(alpha), 1: float(beta)})


@lower("HardSwish", since=14)
def hard_swish(b: Builder, X: Value) -> Value:
    """HardSwish."""
    return activated(b, X, HARD_SWISH, [1 / 6, 0.5], "HardSwish", {0: 1 / 6, 1: 0.5})


@lower.family({"Celu": "CELU", "Elu": "ELU"}, since=6, doc="{}.")
def _elu(kind: str, b: Builder, X: Value, *, alpha: float = 1.0) -> Value:
    return elementwise(b, kind, X, {0: float(alpha)})


@lower("Selu", since=6)
def selu(b: Builder, X: Value, *, alpha: float, gamma: float) -> Value:
    """SELU."""
    return elementwise(b, "SELU", X, {0: float(alpha), 1: float(gamma)})


@lower("Gelu", since=20)
def gelu(b: Builder, X: Value, *, approximate: str = "none") -> Value:
    """GELU."""
    return elementwise(b, "GELU", X, {0: int(approximate == "tanh")})


@lower.family({"Erf": "Erf", "Mish": "Mish"}, since=13, doc="Emit {}.")
def _plain(kind: str, b: Builder, X: Value) -> Value:
    return elementwise(b, kind, X)


@lower("Softplus", since=1)
def softplus(b: Builder, X: Value) -> Value:
    """max(x, 0) + log(1 + exp(-|x|)): ncnn's own overflows."""
    small = unary(b, unary(b, unary(b, unary(b, X, ABS), NEG), EXP), LOG1P)
    return binary(b, elementwise(b, "ReLU", X), small, ADD)


@lower("Shrink", since=9)
def shrink(b: Builder, input: Value, *, bias: float = 0.0, lambd: float = 0.5) -> Value:
    """x - Clip(x): ncnn's Shrink keeps what ONNX sets to zero."""
    # |x| > lambd: x - sign(x) * bias; else 0
    if bias != lambd:
        raise Inexpressible(f"its bias {bias} is not its lambd {lambd}")
    clipped = elementwise(b, "Clip", input, {0: -float(lambd), 1: float(lambd)})
    return binary(b, input, clipped, SUB)


def scaled(b: Builder, x: Value, scale: Array | None, offset: Array | None) -> Value:
    """Multiply by one constant and add another, both in shapes that broadcast."""
    if scale is not None and not (scale == 1).all():
        x = binary(b, x, b.constant(scale), MUL)
    if offset is not None and offset.any():
        x = binary(b, x, b.constant(offset), ADD)
    return x


@lower("BatchNormalization", since=15)
def batch_normalization(
    b: Builder, X: Value, scale: Value, B: Value, input_mean: Value, input_var: Value, *, epsilon: float
) -> Value:
    """BinaryOp by a factor and an offset for each channel."""
    factors = batch_norm_factors(X.rank, scale, B, input_mean, input_var, epsilon)
    if factors is None:
        raise Inexpressible("the model computes its statistics; they must be constant")
    return scaled(b, X, *factors)
