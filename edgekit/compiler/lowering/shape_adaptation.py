"""A graph at another of its shapes, and zeros at a text's padding.

The canonical graph is built for each shape from the model's file. The quantized graph of the largest shape
is adapted to the others: the nodes are the same, and what differs (a constant with a shape, a grid or
positions, an attribute) is replaced by the other graph's.

    largest    x [1,128] -> Gather -> Add(positions [1,128,384]) -> Reshape(to [1,128,12,32])
    further    x [1,16]  -> Gather -> Add(positions [1,16,384])  -> Reshape(to [1,16,12,32])
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
        mask: The input that is 1 for a token and 0 for padding.
        axes: Axes of each output that are as long as the text.

    Raises:
        UsageError: an output is not produced by a node, or holds neither floats nor integers.
    """
    mask_input = next(value for value in model.graph.inputs if value.name == mask)
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
        last = _add(model, "Cast", [mask_input], f"{name}/mask", to=int(dtype))
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


def at_shape(model: ir.Model, largest: ir.Model, further: ir.Model) -> ir.Model:
    """Adapt a graph derived from the largest one to the shape of a further one.

    Args:
        model: ``largest`` itself, or a graph derived from it: with Q/DQ pairs, or other weights.
        largest: Canonical graph at the largest shape.

    Raises:
        UsageError: the nodes of the two graphs differ, or a constant of ``model`` that depends on the shape
            can't be determined.
    """
    if model is largest:
        return further
    changed_nodes = _changed_nodes(largest, further)
    copy = model.clone()
    changed = _changed(largest, further)
    sizes = {str(value.name): value.shape for value in further.graph.inputs}
    for value in copy.graph.inputs:
        value.shape = sizes[str(value.name)]
    for name, value in list(copy.graph.initializers.items()):
        constant = array_of(value)
        source = name if name in changed else name.removesuffix(STORED)
        if constant is None or source not in changed:
            continue
        value.const_value = ir.tensor(_adapted(value, constant, *changed[source]), name=name)
    for node in copy.graph:
        if (other := changed_nodes.pop(str(node.outputs[0].name), None)) is not None:
            node.attributes.update(other.attributes)
        for value in node.outputs:
            value.shape = None
    if changed_nodes:
        raise UsageError(f"node {next(iter(changed_nodes))} {_NOT_ADAPTED}")
    infer_shapes(copy)
    return copy


STORED = "/stored"
"""Ends the name of a constant in integers (compiler/quantize/placement/qdq_graph.py)."""
_NOT_ADAPTED = "cannot be adapted to another shape; use fp32 or fp16, or build one shape"


def _changed_nodes(largest: ir.Model, further: ir.Model) -> dict[str, ir.Node]:
    if [_links(node) for node in largest.graph] != [_links(node) for node in further.graph]:
        raise UsageError(
            "the graph has different nodes at different shapes, so it cannot be quantized for all of them; "
            "use fp32 or fp16, or build one shape"
        )
    return {
        str(theirs.outputs[0].name): theirs
        for ours, theirs in zip(largest.graph, further.graph, strict=True)
        if _attributes(ours) != _attributes(theirs)
    }


def _links(node: ir.Node) -> tuple[str, list[str], list[str], list[tuple[str, str]]]:
    """Return what must be the same at all shapes: operator, values, and attributes that are graphs."""
    inputs = ["" if value is None else str(value.name) for value in node.inputs]
    graphs = [attribute for attribute in node.attributes.values() if attribute.type == ir.AttributeType.GRAPH]
    subgraphs = [(attribute.name, str(attribute.value)) for attribute in graphs]
    return node.op_type, inputs, [str(value.name) for value in node.outputs], subgraphs


def _attributes(node: ir.Node) -> list[tuple[str, str]]:
    return sorted((name, str(attribute.value)) for name, attribute in node.attributes.items())


def _changed(largest: ir.Model, further: ir.Model) -> dict[str, tuple[Array, Array]]:
    """Return the constants that differ at the further shape: name -> before and after."""
    changes = {}
    for name, value in largest.graph.initializers.items():
        before, after = array_of(value), array_of(further.graph.initializers.get(name))
        if before is None or after is None:
            raise UsageError(f"constant {name} exists at one shape only; build one shape")
        if before.shape != after.shape or not np.array_equal(
            before, after, equal_nan=before.dtype.kind == "f"
        ):
            changes[name] = before, after
    return changes


def _adapted(value: ir.Value, constant: Array, before: Array, after: Array) -> Array:
    if constant.dtype == before.dtype and constant.shape == before.shape and np.array_equal(constant, before):
        return after
    part = tuple(slice(0, size) for size in after.shape)
    if constant.shape == before.shape and len(part) == constant.ndim and np.array_equal(before[part], after):
        return np.ascontiguousarray(constant[part])  # e.g. positions in integers
    for node, index in value.uses():
        scale = array_of(node.inputs[1]) if node.op_type == "DequantizeLinear" and index == 0 else None
        zero = array_of(node.inputs[2]) if len(node.inputs) > 2 else np.zeros(1, constant.dtype)
        if scale is not None and zero is not None and scale.size == zero.size == 1:
            limits = np.iinfo(constant.dtype)
            was, now = (
                np.clip(np.rint(array / scale.item()) + int(zero.item()), limits.min, limits.max)
                for array in (before, after)
            )
            if np.array_equal(was, constant):  # e.g. a grid in integers
                return np.asarray(now, constant.dtype)
    raise UsageError(f"constant {value.name} {_NOT_ADAPTED}")
