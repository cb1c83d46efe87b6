"""Decomposes ops and forms of ops newer than opset 23 into ops of opset 23.

    Attention<24>(Q, K, V, ..., nonpad_kv_seqlen)  =>  its function: MatMul, Softmax ...
    SwiGLU<28>(a, b)                               =>  Mul(a, Sigmoid(a)), Mul
    TensorScatter(cache, update, at)               =>  ScatterElements(cache, at + 0 1 2 ..., update)
    CumProd(x, axis)                               =>  ReduceProd(Where(j <= i, x, 1)) over j
    BitCast(int8 -> uint8)                         =>  Cast, which keeps the bits of integers of one width

So targets need to support one opset only. Kept are a BitCast between floats and integers, which has no
equivalent, and recurrences that an engine may have a kernel for (``KEPT``): a target without one writes them
out itself.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.newer_opsets import is_float_mod, is_same_form
from edgekit.compiler.model.node_checks import node_label
from edgekit.compiler.model.rewriting import (
    add_constant,
    dims_of,
    input_of,
    int_of,
    new_node,
    nodes_of,
    put_before,
    replace_node,
    text_of,
)
from edgekit.compiler.passes.canonical_opset import CANONICAL_OPSET, KEPT, constant_of
from edgekit.compiler.passes.expand_functions import expand_functions
from edgekit.errors import ModelError
from edgekit.tensor_spec import Array

# Rewrites new forms of old operators, of opsets 27 and 28, into forms of opset 23.
#
# Mod<fmod=0>(a, b) [28, floats]   =>  r = Mod<fmod=1>(a, b);  r + b where their signs differ
# BitShift(x, by) [28]             =>  BitShift on unsigned numbers; 0 where it shifts by the width or more
# BitShift<RIGHT>(x, by), x < 0    =>  ~(~x >> by)
# Range [27, float16]              =>  Cast(Range in float32)
# SpaceToDepth<mode=DCR> [28]      =>  SpaceToDepth

BOOL, FLOAT = ir.DataType.BOOL, ir.DataType.FLOAT
INT32, INT64 = ir.DataType.INT32, ir.DataType.INT64
UINT32, UINT64 = ir.DataType.UINT32, ir.DataType.UINT64


class _NodeInserter:
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
        """Put a node. ``like``: the value whose shape its output has. None means the replaced node's
        output."""
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


CUM_PROD_LENGTH = 512
"""Longest supported CumProd: its decomposition needs memory of the square of the length."""


def write_out_newer(model: ir.Model) -> bool:
    """Rewrite nodes that opset 23 does not have. Shapes must be inferred.

    Raises:
        ModelError: a node has no form in opset 23.
    """
    version = model.graph.opset_imports.get("", CANONICAL_OPSET)
    if version <= CANONICAL_OPSET:
        return False
    changed = False
    for _, node in list(nodes_of(model, *_REWRITES)):
        since, rewrite = _REWRITES[node.op_type]
        problem = rewrite(model, node) if version >= since else None
        if problem is not None:
            raise ModelError(f"{node_label(node, version)}: {problem}")
        changed |= node.graph is None
    return expand_functions(model, lambda node: _is_newer(node, version), version) or changed


def _is_newer(node: ir.Node, version: int) -> bool:
    """Return whether opset 23 lacks the op, its attributes, its number of inputs or its element types."""
    if node.domain or node.op_type in ("BitShift", "Swish", *KEPT):  # written out here, or in canonical_opset
        return False
    return not is_same_form(node, CANONICAL_OPSET, version)


def _bit_cast(model: ir.Model, node: ir.Node) -> str | None:
    """ONNX Cast discards the higher bits of an integer and reads the rest in two's complement."""
    source, target = node.inputs[0], ir.DataType(int_of(node, "to", 0))
    if source is not None and source.dtype is not None and source.dtype.is_integer() and target.is_integer():
        replace_node(node, new_node(node, "Cast", [source], {"to": int(target)}))
    return None


def _cum_prod(model: ir.Model, node: ir.Node) -> str | None:
    x, axis, dims = node.inputs[0], constant_of(input_of(node, 1)), dims_of(node.inputs[0])
    if x is None or x.dtype is None or axis is None or dims is None:
        return "the model computes its axis; make it a constant"
    along = int(axis.item()) % len(dims)
    length = dims[along]
    if length > CUM_PROD_LENGTH:
        return f"a product of {length} elements; at most {CUM_PROD_LENGTH} are supported"
    backward, exclusive = int_of(node, "reverse", 0), int_of(node, "exclusive", 0)
    i, j = np.indices((length, length))
    reached = j >= i if backward else j <= i
    if exclusive:
        reached &= i != j
    after = (1,) * (len(dims) - along - 1)
    name = node.outputs[0].name
    wide = (*dims[:along], 1, *dims[along:])
    square = (*dims[:along], length, length, *dims[along + 1 :])
    mask = add_constant(model, reached.reshape(length, length, *after), f"{name}/reached")
    one = add_constant(model, np.ones((), x.dtype.numpy()), f"{name}/one")
    axes = add_constant(model, np.array([along], np.int64), f"{name}/axis")
    inner = add_constant(model, np.array([along + 1], np.int64), f"{name}/inner")
    apart = put_before(model, node, "Unsqueeze", [x, axes], wide, "Unsqueeze", x.dtype)
    chosen = put_before(model, node, "Where", [mask, apart, one], square, "Where", x.dtype)
    replace_node(node, new_node(node, "ReduceProd", [chosen, inner], {"keepdims": 0}))
    return None


def _tensor_scatter(model: ir.Model, node: ir.Node) -> str | None:
    """Write row ``b`` of the update from ``write_indices[b]`` on (ONNX TensorScatter-24)."""
    cache, update, start = node.inputs[0], node.inputs[1], input_of(node, 2)
    dims, sizes = dims_of(cache), dims_of(update)
    if dims is None or sizes is None:
        return "its cache and update have no static shape"
    axis = int_of(node, "axis", -2) % len(dims)
    name = node.outputs[0].name
    steps: np.ndarray[tuple[int, ...], np.dtype[np.int64]] = np.arange(sizes[axis], dtype=np.int64)
    steps = steps.reshape(-1, *(1,) * (len(dims) - axis - 1))
    positions = add_constant(model, steps, f"{name}/steps")
    kind = ir.DataType.INT64
    if start is not None:
        column = (sizes[0], *(1,) * (len(dims) - 1))
        shape = add_constant(model, np.array(column, np.int64), f"{name}/column")
        apart = put_before(model, node, "Reshape", [start, shape], column, "Reshape", kind)
        lined = (sizes[0], *(1,) * (axis - 1), *steps.shape)
        positions = put_before(model, node, "Add", [apart, positions], lined, "Add", kind)
        if text_of(node, "mode", "linear") == "circular":
            length = add_constant(model, np.array(dims[axis], np.int64), f"{name}/length")
            positions = put_before(model, node, "Mod", [positions, length], lined, "Mod", kind)
    full = add_constant(model, np.array(sizes, np.int64), f"{name}/full")
    indices = put_before(model, node, "Expand", [positions, full], sizes, "Expand", kind)
    replace_node(node, new_node(node, "ScatterElements", [cache, indices, update], {"axis": axis}))
    return None


_REWRITES = {
    "BitCast": (26, _bit_cast),
    "BitShift": (28, bit_shift),
    "CumProd": (26, _cum_prod),
    "Mod": (28, float_mod),
    "Range": (27, half_range),
    "SpaceToDepth": (28, space_to_depth),
    "TensorScatter": (24, _tensor_scatter),
}
"""Op -> the opset from which on it is rewritten, and its rewrite."""
