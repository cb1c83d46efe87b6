"""Decomposes integer and boolean forms: bitwise ops into arithmetic, sums and products of integers."""

from __future__ import annotations

from math import prod

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.compiler.model.rewriting import array_of, dims_of, input_of, int_of, text_of
from edgekit.compiler.passes.decompositions.tape import Tape, decomposes
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array

INTEGERS = (ir.DataType.INT32, ir.DataType.INT64)
INT32 = int(ir.DataType.INT32)
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
