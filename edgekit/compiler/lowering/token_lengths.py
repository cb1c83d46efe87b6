"""Text encoder's graph at another number of tokens, with zeros at the padding.

The canonical graph is built for each length from the model's file. The quantized graph of the longest length
is adapted to the others: the nodes are the same, and a constant that differs (a shape, positions) is replaced
by the shorter graph's.

    longest    x [1,128] -> Gather -> Add(positions [1,128,384]) -> Reshape(to [1,128,12,32])
    shorter    x [1,16]  -> Gather -> Add(positions [1,16,384])  -> Reshape(to [1,16,12,32])
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.rewriting import add_constant, array_of, free_name
from edgekit.compiler.model.shape_inference import infer_shapes
from edgekit.errors import UsageError
from edgekit.tensor_spec import Array


def zero_padding(model: ir.Model, mask: str, axes: Mapping[str, tuple[int, ...]]) -> None:
    """Set outputs to zero where there is no token: multiply them by the mask, in place.

    Args:
        model: Model of any opset with static shapes.
        mask: The input that is 1 for a token and 0 for padding.
        axes: Axes of each output that are as long as the text.

    Raises:
        UsageError: an output is not produced by a node, or holds neither floats nor integers.
    """
    given = next(value for value in model.graph.inputs if value.name == mask)
    for index, output in enumerate(list(model.graph.outputs)):
        name = str(output.name)
        if name not in axes:
            continue
        dtype, dims = output.dtype, output.shape
        if output.producer() is None or dtype is None or dims is None or dtype in _WITHOUT_PRODUCT:
            raise UsageError(
                f"--lengths: the size of output {name} is not a product of numbers; leave --lengths out"
            )
        sizes = [int(size) for size in dims.numpy()]
        output.name = free_name(model, f"{name}/all")
        last = _add(model, "Cast", [given], f"{name}/mask", to=int(dtype))
        last.dtype = dtype
        for axis in axes[name]:
            shape = np.ones(len(sizes), np.int64)
            shape[axis] = sizes[axis]
            wide = _add(
                model,
                "Reshape",
                [last, add_constant(model, shape, f"{name}/mask{axis}/shape")],
                f"{name}/mask{axis}",
            )
            output = _add(model, "Mul", [output, wide], f"{name}/tokens{axis}")
        output.name = name
        output.dtype, output.shape = dtype, ir.Shape(sizes)
        model.graph.outputs[index] = output
    infer_shapes(model)


_WITHOUT_PRODUCT = (ir.DataType.BOOL, ir.DataType.STRING)


def _add(model: ir.Model, op: str, inputs: list[ir.Value], name: str, **attributes: int) -> ir.Value:
    name = free_name(model, name)
    node = ir.node(op, inputs, attributes=attributes, name=name)
    node.outputs[0].name = name
    model.graph.append(node)
    return node.outputs[0]


def at_length(model: ir.Model, longest: ir.Model, shorter: ir.Model) -> ir.Model:
    """Adapt a graph derived from the longest one to the shorter graph's length.

    Args:
        model: ``longest`` itself, or a graph derived from it: with Q/DQ pairs, or other weights.
        longest: Canonical graph with the most tokens.
        shorter: The same model's canonical graph with fewer tokens.

    Raises:
        UsageError: the nodes of the two graphs differ, or a constant of ``model`` that depends on the length
            can't be determined.
    """
    if model is longest:
        return shorter
    if _nodes(longest) != _nodes(shorter):
        raise UsageError(
            "--lengths: the graph has different nodes at different lengths, so it cannot be quantized for "
            "all of them; use fp32 or fp16, or leave --lengths out"
        )
    copy = model.clone()
    changed = _changed(longest, shorter)
    sizes = {str(value.name): value.shape for value in shorter.graph.inputs}
    for value in copy.graph.inputs:
        value.shape = sizes[str(value.name)]
    for name, value in list(copy.graph.initializers.items()):
        own = array_of(value)
        source = name if name in changed else name.removesuffix(STORED)
        if own is None or source not in changed:
            continue
        before, after = changed[source]
        value.const_value = ir.tensor(_as_shorter(name, own, before, after), name=name)
    for node in copy.graph:
        for value in node.outputs:
            value.shape = None
    infer_shapes(copy)
    return copy


STORED = "/stored"
"""Ends the name of a constant in integers (compiler/quantize/placement/qdq_graph.py)."""


def _nodes(model: ir.Model) -> list[tuple[str, str, tuple[str, ...], tuple[str, ...]]]:
    return [
        (
            node.op_type,
            repr(sorted((name, str(attribute.value)) for name, attribute in node.attributes.items())),
            tuple("" if value is None else str(value.name) for value in node.inputs),
            tuple(str(value.name) for value in node.outputs),
        )
        for node in model.graph
    ]


def _changed(longest: ir.Model, shorter: ir.Model) -> dict[str, tuple[Array, Array]]:
    """Return the constants that differ at the shorter length: name -> before and after."""
    found = {}
    for name, value in longest.graph.initializers.items():
        before, after = array_of(value), array_of(shorter.graph.initializers.get(name))
        if before is None or after is None:
            raise UsageError(f"--lengths: constant {name} exists at one length only; leave --lengths out")
        if before.shape != after.shape or not np.array_equal(
            before, after, equal_nan=before.dtype.kind == "f"
        ):
            found[name] = before, after
    return found


def _as_shorter(name: str, constant: Array, before: Array, after: Array) -> Array:
    """Return a constant derived from ``before``, as it is derived from ``after``."""
    if constant.dtype == before.dtype and constant.shape == before.shape and np.array_equal(constant, before):
        return after
    part = tuple(slice(0, size) for size in after.shape)
    if constant.shape == before.shape and len(part) == constant.ndim and np.array_equal(before[part], after):
        return np.ascontiguousarray(constant[part])  # e.g. positions in integers
    raise UsageError(f"--lengths: constant {name} cannot be matched at another length; use fp32 or fp16")
