"""Rewrites new forms of old operators, of opsets 27 and 28, into forms of opset 23.

Mod<fmod=0>(a, b) [28, floats]   =>  r = Mod<fmod=1>(a, b);  r + b where their signs differ
BitShift(x, by) [28]             =>  BitShift on unsigned numbers; 0 where it shifts by the width or more
BitShift<RIGHT>(x, by), x < 0    =>  ~(~x >> by)
Range [27, float16]              =>  Cast(Range in float32)
SpaceToDepth<mode=DCR> [28]      =>  SpaceToDepth
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.newer_opsets import is_float_mod
from edgekit.compiler.model.rewriting import (
    add_constant,
    dims_of,
    int_of,
    new_node,
    put_before,
    replace_node,
    text_of,
)
from edgekit.tensor_spec import Array

BOOL, FLOAT = ir.DataType.BOOL, ir.DataType.FLOAT
INT32, INT64 = ir.DataType.INT32, ir.DataType.INT64
UINT32, UINT64 = ir.DataType.UINT32, ir.DataType.UINT64


class _NodeInserter:
    """Puts nodes before one node, whose output's shape they have."""

    def __init__(self, model: ir.Model, node: ir.Node, dims: tuple[int, ...]) -> None:
        self.model, self.node, self.dims = model, node, dims
        self.count = 0

    def __call__(
        self,
        op: str,
        *inputs: ir.Value,
        kind: ir.DataType,
        like: ir.Value | None = None,
        **attributes: int | str,
    ) -> ir.Value:
        """Put a node. ``like``: the value whose shape its output has; None: the replaced node's output."""
        dims = self.dims if like is None else dims_of(like)
        assert dims is not None
        self.count += 1
        return put_before(
            self.model, self.node, op, list(inputs), dims, f"{op}_{self.count}", kind, **attributes
        )

    def number(self, number: float, kind: ir.DataType) -> ir.Value:
        self.count += 1
        array: Array = np.array(number).astype(kind.numpy())
        return add_constant(self.model, array, f"{self.node.outputs[0].name}/number_{self.count}")


def float_mod(model: ir.Model, node: ir.Node) -> str | None:
    """a - floor(a / b) * b of floats, exactly (ONNX Mod-28).

    C's fmod is exact; floor(a / b) is not. fmod(a, inf) is a, which OpenVINO computes as NaN: a - (a - a) is
    that too, and NaN if a is infinite. The sign of a zero is not kept: engines' Where loses it.
    """
    if not is_float_mod(node):
        return None
    a, b = node.inputs[0], node.inputs[1]
    dims = dims_of(node.outputs[0])
    if a is None or b is None or a.dtype is None or dims is None:
        return "its output has no static shape"
    kind, put = a.dtype, _NodeInserter(model, node, dims)
    zero = put.number(0.0, kind)
    itself = put("Sub", a, put("Sub", a, a, kind=kind, like=a), kind=kind, like=a)
    endless = put("Equal", put("Abs", b, kind=kind, like=b), put.number(np.inf, kind), kind=BOOL, like=b)
    rest = put("Where", endless, itself, put("Mod", a, b, kind=kind, fmod=1), kind=kind)
    below = put("Less", b, zero, kind=BOOL, like=b)
    apart = put("Xor", put("Less", rest, zero, kind=BOOL), below, kind=BOOL)
    apart = put("And", apart, put("Not", put("Equal", rest, zero, kind=BOOL), kind=BOOL), kind=BOOL)
    adjusted = put("Add", rest, b, kind=kind)
    replace_node(node, new_node(node, "Where", [apart, adjusted, rest]))
    return None


def bit_shift(model: ir.Model, node: ir.Node) -> str | None:
    """Shift as unsigned numbers of 32 or 64 bits, and select in signed ones, which engines have kernels for
    (ONNX BitShift-28). Casts between integers keep the lower bits."""
    x, shift, dims = node.inputs[0], node.inputs[1], dims_of(node.outputs[0])
    if x is None or shift is None or x.dtype is None or dims is None:
        return "its output has no static shape"
    kind, put = x.dtype, _NodeInserter(model, node, dims)
    bits, direction = kind.numpy().itemsize * 8, text_of(node, "direction", "LEFT")
    wide, unsigned = (INT64, UINT64) if bits == 64 else (INT32, UINT32)
    zero = put.number(0, wide)
    steps = put("Cast", shift, kind=wide, like=shift, to=int(wide))
    valid = put("GreaterOrEqual", steps, zero, kind=BOOL, like=shift)
    fits = put(
        "And", valid, put("Less", steps, put.number(bits, wide), kind=BOOL, like=shift), kind=BOOL, like=shift
    )
    steps = put("Where", fits, steps, zero, kind=wide, like=shift)
    source = put("Cast", x, kind=wide, like=x, to=int(wide))
    negative = None
    if kind.is_signed() and direction == "RIGHT":
        negative = put("Less", source, zero, kind=BOOL, like=x)
        inverted = put("BitwiseNot", source, kind=wide, like=x)
        source = put("Where", negative, inverted, source, kind=wide, like=x)
    operand = put("Cast", source, kind=unsigned, like=x, to=int(unsigned))
    counts = put("Cast", steps, kind=unsigned, like=shift, to=int(unsigned))
    shifted = put("BitShift", operand, counts, kind=unsigned, direction=direction)
    result = put("Where", fits, put("Cast", shifted, kind=wide, to=int(wide)), zero, kind=wide)
    if negative is not None:
        result = put("Where", negative, put("BitwiseNot", result, kind=wide), result, kind=wide)
    replace_node(node, new_node(node, "Cast", [result], {"to": int(kind)}))
    return None


def half_range(model: ir.Model, node: ir.Node) -> str | None:
    """Count in float32, as ``stash_type`` 1 says (ONNX Range-27)."""
    kind = node.outputs[0].dtype
    if kind not in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16):
        node.attributes.pop("stash_type", None)
        return None
    if int_of(node, "stash_type", int(FLOAT)) != int(FLOAT):
        return "it counts in another type than float32, which only stash_type 1 does exactly"
    put = _NodeInserter(model, node, ())
    ends = [put("Cast", v, kind=FLOAT, like=v, to=int(FLOAT)) for v in node.inputs if v is not None]
    counted = put_before(model, node, "Range", ends, (), "Range", FLOAT)
    counted.shape = node.outputs[0].shape
    replace_node(node, new_node(node, "Cast", [counted], {"to": int(kind)}))
    return None


def space_to_depth(model: ir.Model, node: ir.Node) -> str | None:
    """Remove the default of a newer attribute; the other mode is written out by its function."""
    if text_of(node, "mode", "DCR") == "DCR":
        node.attributes.pop("mode", None)
    return None
