"""Checks of one node that ONNX requires but engines only make at run time: counts, element types, matching
sizes.

ONNX's shape inference does not check these (for example a Conv whose weight has too many channels).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import onnx_ir as ir

from edgekit.errors import ModelError

Dims = tuple[int, ...]
MAX_WINDOW = 2**31 - 1
"""Most of a stride, a dilation, a padding or a kernel's size: engines and their formats count in 32 bits."""


class InvalidNodeError(ModelError):
    """A node of the main graph is invalid for its input shapes or types."""

    def __init__(self, message: str, node: ir.Node) -> None:
        super().__init__(message)
        self.node = node


def times(dims: Sequence[object]) -> str:
    """Format dimensions as text.

    >>> times((1, 3, 480, 640)), times(())
    ('1x3x480x640', 'scalar')
    """
    return "x".join(str(d) for d in dims) or "scalar"


def node_label(node: ir.Node, opset: int | None) -> str:
    """Return a node's label for error messages: ``node /conv1 (Conv, opset 17)``."""
    op = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    return f"node {node.name} ({op}, opset {opset})" if opset else f"node {node.name} ({op})"


def static_dims(value: ir.Value | None) -> Dims | None:
    """Return the shape of a value if all dimensions are known, else None."""
    if value is None or value.shape is None:
        return None
    dims = value.shape.dims
    return tuple(int(d) for d in dims if isinstance(d, int)) if value.shape.is_static() else None


def complaint(node: ir.Node, schema: Any) -> str | None:
    """Return the node's first violation of its schema, or None.

    Args:
        node: Node whose inputs have their types and, as far as known, their shapes.
    """
    inputs, outputs = len(node.inputs), len(node.outputs)
    if not schema.min_input <= inputs <= schema.max_input:
        return f"has {inputs} inputs; the op takes {_range(schema.min_input, schema.max_input)}"
    if not schema.min_output <= outputs <= schema.max_output:
        return f"has {outputs} outputs; the op has {_range(schema.min_output, schema.max_output)}"
    for name, attribute in schema.attributes.items():
        if attribute.required and name not in node.attributes:
            return f"attribute {name} is missing"
    for name, attr in node.attributes.items():
        if name not in schema.attributes:
            return f"has an attribute {name}, which the op does not have"
        expected_type = schema.attributes[name].type.name
        if attr.type.name != expected_type:
            return f"attribute {name} has type {attr.type.name}; the op takes {expected_type}"
    return _window_complaint(node) or _type_complaint(node, schema) or _size_complaint(node)


def _window_complaint(node: ir.Node) -> str | None:
    for name in ("kernel_shape", "strides", "dilations", "pads", "output_padding", "output_shape"):
        attribute = node.attributes.get(name)
        values = attribute.as_ints() if attribute is not None else ()
        far = next((value for value in values if abs(value) > MAX_WINDOW), None)
        if far is not None:
            return f"attribute {name} contains {far}, more than the maximum of {MAX_WINDOW}"
    if _int(node, "offset_group", 1) < 1:
        return f"attribute offset_group is {_int(node, 'offset_group', 1)}; it must be 1 or more"
    return None


def _range(low: int, high: int) -> str:
    if high >= 2**31 - 1:
        return f"{low} or more"
    return str(low) if low == high else f"{low} to {high}"


@cache
def _formal_inputs(
    op: str, version: int, domain: str
) -> tuple[tuple[tuple[str, bool, bool], ...], dict[str, frozenset[str]]]:
    import onnx.defs

    schema = onnx.defs.get_schema(op, version, domain)
    variadic = onnx.defs.OpSchema.FormalParameterOption.Variadic
    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    formal = tuple(
        (p.type_str, p.option == variadic and not p.is_homogeneous, p.option == optional)
        for p in schema.inputs
    )
    return formal, {c.type_param_str: frozenset(c.allowed_type_strs) for c in schema.type_constraints}


def _type_complaint(node: ir.Node, schema: Any) -> str | None:
    formal, allowed = _formal_inputs(schema.name, schema.since_version, schema.domain)
    bound: dict[str, tuple[int, ir.DataType]] = {}
    for index, value in enumerate(node.inputs):
        type_name, mixed, optional = formal[min(index, len(formal) - 1)]
        if value is None:
            if not optional:
                return f"input {index} is missing, and it is not optional"
            continue
        if not isinstance(value.type, ir.TensorType):
            continue
        dtype = value.type.dtype
        text = f"tensor({dtype.name.lower()})"
        if type_name in allowed and text not in allowed[type_name]:
            return f"input {index} ({value.name}) is {dtype.name.lower()}, which the op does not support"
        if type_name not in allowed or mixed:
            continue
        first, other = bound.setdefault(type_name, (index, dtype))
        if other != dtype:
            return (
                f"input {first} is {other.name.lower()}, but input {index} ({value.name}) is "
                f"{dtype.name.lower()}"
            )
    return None


def _size_complaint(node: ir.Node) -> str | None:
    check = _SIZE_CHECKS.get(node.op_type)
    if check is None or node.domain:
        return None
    shapes = [static_dims(value) for value in node.inputs]
    return check(node, shapes)


def _conv(node: ir.Node, shapes: list[Dims | None]) -> str | None:
    x, w = shapes[:2]
    if x is None or w is None:
        return None
    group = _int(node, "group", 1)
    if len(x) != len(w) or len(x) < 3:
        return f"weight {times(w)} and input {times(x)} do not have the same number of dimensions, 3 or more"
    if node.op_type == "ConvTranspose":
        if x[1] != w[0] or group < 1 or w[0] % group:
            return f"weight has {w[0]} input channels, but its input has {x[1]}"
        return _bias(shapes, w[1] * group)
    if group < 1 or x[1] != w[1] * group:
        groups = f" in each of {group} groups" if group != 1 else ""
        return f"weight has {w[1]} input channels{groups}, but its input has {x[1]}"
    if w[0] % group:
        return f"weight has {w[0]} output channels, not a multiple of its {group} groups"
    return _bias(shapes, w[0])


def _bias(shapes: list[Dims | None], channels: int) -> str | None:
    bias = shapes[2] if len(shapes) > 2 else None
    if bias is not None and bias != (channels,):
        return f"bias has shape {times(bias)}, but the weight has {channels} output channels"
    return None


def _gemm(node: ir.Node, shapes: list[Dims | None]) -> str | None:
    a, b = shapes[:2]
    if a is None or b is None:
        return None
    if len(a) != 2 or len(b) != 2:
        return f"inputs are {times(a)} and {times(b)}; both must have 2 dimensions"
    inner_a = a[0] if _int(node, "transA", 0) else a[1]
    inner_b = b[1] if _int(node, "transB", 0) else b[0]
    if inner_a != inner_b:
        return f"inputs are {times(a)} and {times(b)}: the inner sizes {inner_a} and {inner_b} differ"
    return None


def _matmul(node: ir.Node, shapes: list[Dims | None]) -> str | None:
    a, b = shapes
    if not a or not b:
        return None
    inner_b = b[-2] if len(b) > 1 else b[0]
    if a[-1] != inner_b:
        return f"inputs are {times(a)} and {times(b)}: the inner sizes {a[-1]} and {inner_b} differ"
    return None


def _batch_norm(node: ir.Node, shapes: list[Dims | None]) -> str | None:
    x = shapes[0]
    if x is None or len(x) < 2:
        return None
    for value, dims in zip(node.inputs[1:], shapes[1:], strict=True):
        if value is not None and dims is not None and dims != (x[1],):
            return f"{value.name} has shape {times(dims)}, but the input has {x[1]} channels"
    return None


def _broadcast(node: ir.Node, shapes: list[Dims | None]) -> str | None:
    ranked = [s for s in shapes if s is not None]
    rank = max((len(s) for s in ranked), default=0)
    for axis in range(1, rank + 1):
        sizes = {s[-axis] for s in ranked if len(s) >= axis} - {1}
        if len(sizes) > 1:
            return f"inputs {' and '.join(times(s) for s in ranked)} do not broadcast"
    return None


def _concat(node: ir.Node, shapes: list[Dims | None]) -> str | None:
    ranked = [s for s in shapes if s is not None]
    if len({len(s) for s in ranked}) > 1:
        return f"inputs {' and '.join(times(s) for s in ranked)} differ in their number of dimensions"
    axis = _int(node, "axis", 0)
    if not ranked or not -len(ranked[0]) <= axis < len(ranked[0]):
        return f"axis {axis} is outside {times(ranked[0])}" if ranked else None
    axis %= len(ranked[0])
    if len({s[:axis] + s[axis + 1 :] for s in ranked}) > 1:
        return f"inputs {' and '.join(times(s) for s in ranked)} differ on an axis other than {axis}"
    return None


def _transpose(node: ir.Node, shapes: list[Dims | None]) -> str | None:
    perm = node.attributes.get("perm")
    if shapes[0] is None or perm is None or sorted(perm.as_ints()) == list(range(len(shapes[0]))):
        return None
    return f"perm {list(perm.as_ints())} is not an order of the axes of its input, {times(shapes[0])}"


def reshape_complaint(source: Dims, target: Dims | None) -> str | None:
    if target is not None and math.prod(source) != math.prod(target):
        new_size, old_size = math.prod(target), math.prod(source)
        return f"reshapes {times(source)} ({old_size} elements) to {times(target)} ({new_size} elements)"
    return None


def _int(node: ir.Node, name: str, default: int) -> int:
    attribute = node.attributes.get(name)
    return attribute.as_int() if attribute is not None and attribute.type == ir.AttributeType.INT else default


_SIZE_CHECKS: dict[str, Callable[[ir.Node, list[Dims | None]], str | None]] = {
    "Conv": _conv,
    "ConvTranspose": _conv,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "BatchNormalization": _batch_norm,
    "Concat": _concat,
    "Transpose": _transpose,
    **dict.fromkeys(["Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean", "Where"], _broadcast),
}
