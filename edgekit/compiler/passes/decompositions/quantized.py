"""Decomposes integer ops into float ops with Q/DQ pairs, and Q/DQ into exact float arithmetic."""

from __future__ import annotations

from math import prod

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.compiler.model.rewriting import array_of, dims_of, input_of, int_of, text_of
from edgekit.compiler.passes.decompositions.tape import Tape, decomposes
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array

FLOAT, INT32 = int(ir.DataType.FLOAT), int(ir.DataType.INT32)
STORED = (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.UINT16)
EXACT_TERMS = 2**24 // (255 * 255)
"""Most products of 8-bit integers whose sum is exact in float32."""


def _floats(tape: Tape, node: ir.Node, index: int, axis: int) -> str:
    """Dequantize the input ``index`` with scale ``at + 1`` and zero point ``at + 2``."""
    scale = tape("Cast", f"i{index + 1}", to=FLOAT)
    return tape(
        "DequantizeLinear",
        f"i{index}",
        _plain(tape, node, index + 1, scale),
        _zero(tape, node, index + 2),
        axis=axis,
    )


def _plain(tape: Tape, node: ir.Node, index: int, name: str) -> str:
    dims = dims_of(input_of(node, index))
    return tape.reshape(name, ()) if dims is not None and prod(dims) == 1 else name


def _zero(tape: Tape, node: ir.Node, index: int) -> str:
    return _plain(tape, node, index, f"i{index}")


def _rounded(tape: Tape, node: ir.Node, x: str, index: int) -> str:
    scale = _plain(tape, node, index, tape("Cast", f"i{index}", to=FLOAT))
    return tape("QuantizeLinear", x, scale, _zero(tape, node, index + 1))


@decomposes("QLinearConv")
def q_linear_conv(node: ir.Node) -> onnx.GraphProto | None:
    """QuantizeLinear(Conv(DequantizeLinear(x), DequantizeLinear(w), DequantizeLinear(bias)))."""
    tape = Tape(node)
    operands = [_floats(tape, node, 0, 1), _floats(tape, node, 3, 0)]
    if input_of(node, 8) is not None:
        bias = tape("Cast", "i8", to=FLOAT)
        scales = [_plain(tape, node, index, tape("Cast", f"i{index}", to=FLOAT)) for index in (1, 4)]
        operands.append(tape("Mul", bias, tape("Mul", *scales)))
    product = tape("Conv", *operands, **{name: a.value for name, a in node.attributes.items()})
    return tape.body(_rounded(tape, node, product, 6))


@decomposes("QLinearMatMul")
def q_linear_mat_mul(node: ir.Node) -> onnx.GraphProto | None:
    """QuantizeLinear(MatMul(DequantizeLinear(a), DequantizeLinear(b)))."""
    scales = [dims_of(input_of(node, index)) for index in (1, 4)]
    if any(dims is None or prod(dims) != 1 for dims in scales):
        return None  # one a row or a column
    tape = Tape(node)
    product = tape("MatMul", _floats(tape, node, 0, 1), _floats(tape, node, 3, 1))
    return tape.body(_rounded(tape, node, product, 6))


@decomposes("MatMulInteger")
def mat_mul_integer(node: ir.Node) -> onnx.GraphProto | None:
    """Cast(MatMul(a - zero, b - zero)) in float32, if its sums are exact."""
    dims, zero = dims_of(node.inputs[0]), dims_of(input_of(node, 2))
    if not dims or dims[-1] > EXACT_TERMS or (zero is not None and prod(zero) != 1):
        return None
    tape = Tape(node)
    product = tape(
        "MatMul", _without_zero_point(tape, node, 0, 2, ()), _without_zero_point(tape, node, 1, 3, None)
    )
    return tape.body(tape("Cast", product, to=INT32))


@decomposes("ConvInteger")
def conv_integer(node: ir.Node) -> onnx.GraphProto | None:
    """Cast(Conv(x - zero, w - zero)) in float32, if its sums are exact."""
    w, zero = dims_of(node.inputs[1]), dims_of(input_of(node, 3))
    if w is None or prod(w[1:]) > EXACT_TERMS:
        return None
    tape = Tape(node)
    per_channel = (w[0], *(1,) * (len(w) - 1)) if zero is not None and prod(zero) > 1 else ()
    operands = (_without_zero_point(tape, node, 0, 2, ()), _without_zero_point(tape, node, 1, 3, per_channel))
    product = tape("Conv", *operands, **{name: a.value for name, a in node.attributes.items()})
    return tape.body(tape("Cast", product, to=INT32))


def _without_zero_point(
    tape: Tape, node: ir.Node, index: int, zero_at: int, shape: tuple[int, ...] | None
) -> str:
    """Subtract the zero point from input ``index``, in float32."""
    x = tape("Cast", f"i{index}", to=FLOAT)
    if input_of(node, zero_at) is None:
        return x
    zero = tape("Cast", f"i{zero_at}", to=FLOAT)
    return tape("Sub", x, zero if shape is None else tape.reshape(zero, shape))


@decomposes("QuantizeLinear")
def quantize_linear(node: ir.Node) -> onnx.GraphProto | None:
    """Clip(Round(x / scale) + zero point), all in float32, then the integer type."""
    kind = node.outputs[0].dtype
    if kind not in STORED or int_of(node, "block_size", 0):
        return None
    tape, limits = Tape(node), np.iinfo(kind.numpy())
    steps = tape("Round", tape("Div", _float(tape, node, 0), _spread(tape, node, 1)))
    if input_of(node, 2) is not None:
        steps = tape("Add", steps, _spread(tape, node, 2))
    clipped = tape("Clip", steps, np.array(limits.min, np.float32), np.array(limits.max, np.float32))
    return tape.body(tape("Cast", clipped, to=int(kind)))


@decomposes("DequantizeLinear")
def dequantize_linear(node: ir.Node) -> onnx.GraphProto | None:
    """(x - zero point) * scale in float32."""
    stored, kind = node.inputs[0], node.outputs[0].dtype
    if stored is None or stored.dtype not in (*STORED, ir.DataType.INT32) or int_of(node, "block_size", 0):
        return None
    tape = Tape(node)
    x = _float(tape, node, 0)
    if input_of(node, 2) is not None:
        x = tape("Sub", x, _spread(tape, node, 2))
    real = tape("Mul", x, _spread(tape, node, 1))
    return tape.body(real if kind == ir.DataType.FLOAT else tape("Cast", real, to=int(kind or FLOAT)))


def _float(tape: Tape, node: ir.Node, index: int) -> str:
    value = input_of(node, index)
    plain = value is not None and value.dtype == ir.DataType.FLOAT
    return f"i{index}" if plain else tape("Cast", f"i{index}", to=FLOAT)


def _spread(tape: Tape, node: ir.Node, index: int) -> str:
    """Convert a scale or zero point to float32 in a shape that broadcasts along its axis."""
    name, dims, data = _float(tape, node, index), dims_of(input_of(node, index)), dims_of(node.inputs[0])
    if dims is None or data is None or prod(dims) == 1:
        return tape.reshape(name, ())
    axis = int_of(node, "axis", 1) % len(data)
    return tape.reshape(name, [dims[0] if a == axis else 1 for a in range(len(data))])


INTEGERS = (ir.DataType.INT32, ir.DataType.INT64)
BITS = 31
MOST_PRODUCTS = 2**22
"""Most products of one integer MatMul, which are all kept before they are added."""


@decomposes("BitwiseNot")
def bitwise_not(node: ir.Node) -> onnx.GraphProto | None:
    """-1 - x of signed integers, the largest number less x of unsigned ones."""
    kind = node.outputs[0].dtype
    if kind is None:
        return None
    dtype = kind.numpy()
    ones = np.array(np.iinfo(dtype).max if dtype.kind == "u" else -1, dtype)
    tape = Tape(node)
    return tape.body(tape("Sub", ones, "i0"))


@decomposes("BitwiseAnd", "BitwiseOr", "BitwiseXor")
def bitwise(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose bitwise ops on integers of up to 32 bits: split into bits, combine them, and add them up.

    low = x + 2^31 where x < 0; bit k = low / 2^k mod 2; the sign is a comparison.
    """
    kind, dims = node.outputs[0].dtype, dims_of(node.outputs[0])
    if kind is None or dims is None or kind.numpy().itemsize > 4 or kind == ir.DataType.UINT32:
        return None
    tape, op = Tape(node), node.op_type.removeprefix("Bitwise")
    powers: Array = (2 ** np.arange(BITS)).astype(np.int32)
    int_min = np.array(np.iinfo(np.int32).min, np.int32)
    zero, two = np.array(0, np.int32), np.array(2, np.int32)
    bits, signs = [], []
    for index in range(2):
        shape = dims_of(node.inputs[index])
        if shape is None:
            return None
        x = tape.reshape(f"i{index}" if kind == ir.DataType.INT32 else _int32(tape, index), (*shape, 1))
        negative = tape("Less", x, zero)
        low = tape("Where", negative, tape("Sub", x, int_min), x)
        bits.append(tape("Mod", tape("Div", low, powers), two))
        signs.append(negative)
    joined = {
        "And": lambda: tape("Mul", *bits),
        "Or": lambda: tape("Max", *bits),
        "Xor": lambda: tape("Abs", tape("Sub", *bits)),
    }[op]()
    low = tape("ReduceSum", tape("Mul", joined, powers), np.array([-1], np.int64), keepdims=0)
    sign = tape.reshape(tape(op, *signs), dims)
    result = tape("Add", low, tape("Where", sign, int_min, zero))
    return tape.body(result if kind == ir.DataType.INT32 else tape("Cast", result, to=int(kind)))


@decomposes("BitShift")
def bit_shift(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose BitShift into products and quotients of powers of two, in int32.

    Powers and masks are read from tables; 2^31 wraps to the sign bit of a product. A quotient is the sum of
    those of its upper and lower 16 bits, without the bits that leave: exact also in float32, in which
    OpenVINO divides.

    Raises:
        Inexpressible: a left shift of 64 bits, whose result engines of 32 bits do not hold.
    """
    kind, dims = node.outputs[0].dtype, dims_of(node.outputs[0])
    if kind is None or dims is None:
        return None
    left = text_of(node, "direction", "LEFT") == "LEFT"
    if left and kind.numpy().itemsize > 4:
        reason = "the result of a left shift of 64 bits does not fit into 32, in which the engine computes"
        raise Inexpressible(reason, code="EK1004")
    powers = (2 ** np.arange(BITS + 1)).astype(np.uint32)
    tape = Tape(node)
    x, shift = _int32(tape, 0), tape("Min", _int32(tape, 1), np.array(BITS, np.int32))
    if left:
        result = tape("Mul", x, tape("Gather", powers.view(np.int32), shift))
    else:
        power = tape("Gather", np.minimum(powers, 2 ** (BITS - 1)).astype(np.int32), shift)
        staying = ~(powers - 1)
        halves = []
        for half in (0x7FFF0000, 0xFFFF):
            mask = tape("Gather", (staying & np.uint32(half)).view(np.int32), shift)
            halves.append(tape("Div", tape("BitwiseAnd", x, mask), power))
        result = tape("Add", *halves)
    return tape.body(tape("Cast", result, to=int(kind)))


def _int32(tape: Tape, index: int) -> str:
    return tape("Cast", f"i{index}", to=INT32)


@decomposes("MatMul")
def mat_mul(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose MatMul. A vector times a batch of matrices gets an axis of 1; a product of integers becomes
    Mul and ReduceSum."""
    a, b, y = dims_of(node.inputs[0]), dims_of(node.inputs[1]), dims_of(node.outputs[0])
    if a is None or b is None or y is None:
        return None
    tape = Tape(node)
    if node.outputs[0].dtype in INTEGERS:
        left = (*a, 1) if len(a) > 1 else (1, a[0], 1)
        right = (*b[:-2], 1, *b[-2:]) if len(b) > 1 else (1, b[0], 1)
        if prod(np.broadcast_shapes(left, right)) > MOST_PRODUCTS:
            return None
        products = tape("Mul", tape.reshape("i0", left), tape.reshape("i1", right))
        sums = tape("ReduceSum", products, np.array([-2], np.int64), keepdims=0)
        return tape.body(tape.reshape(sums, y))
    if len(a) != 1 or len(b) < 3:
        return None
    return tape.body(tape.reshape(tape("MatMul", tape.reshape("i0", (1, *a)), "i1"), y))


@decomposes("CumSum")
def cum_sum(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose CumSum of integers exactly: add x shifted by 1, 2, 4 ... elements, in log2(length) steps."""
    dims, axis = dims_of(node.inputs[0]), array_of(input_of(node, 1))
    if dims is None or axis is None or node.outputs[0].dtype not in INTEGERS or 0 in dims:
        return None
    tape, along, backward = Tape(node), int(axis.item()) % len(dims), bool(int_of(node, "reverse", 0))
    length, total = dims[along], "i0"

    def shifted(name: str, bits: int) -> str:
        span = (bits, length) if backward else (0, length - bits)
        amounts = np.zeros((2, len(dims)), np.int64)
        amounts[1 if backward else 0, along] = bits
        return tape("Pad", tape.part(name, along, *span), amounts.ravel())

    offset = 1
    while offset < length:
        total = tape("Add", total, shifted(total, offset))
        offset *= 2
    if int_of(node, "exclusive", 0):
        total = tape("Sub", total, "i0")
    return tape.body(total)


@decomposes("ReduceMax", "ReduceMin")
def boolean_extreme(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose ReduceMax and ReduceMin of booleans, computed as integers."""
    if node.outputs[0].dtype != ir.DataType.BOOL:
        return None
    tape = Tape(node)
    axes = ["i1"] if input_of(node, 1) is not None else []
    attributes = {name: a.value for name, a in node.attributes.items()}
    extreme = tape(node.op_type, _int32(tape, 0), *axes, **attributes)
    return tape.body(tape("Cast", extreme, to=int(ir.DataType.BOOL)))


@decomposes("Equal")
def equal(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose Equal of booleans into Not(Xor)."""
    x = node.inputs[0]
    if x is None or x.dtype != ir.DataType.BOOL:
        return None
    tape = Tape(node)
    return tape.body(tape("Not", tape("Xor", "i0", "i1")))
