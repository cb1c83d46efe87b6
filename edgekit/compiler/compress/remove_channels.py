"""The graph without some channels: smaller constants, and new sizes if a constant states one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from edgekit.compiler.compress.channel_groups import Channels, find_channels
from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.rewriting import add_constant, array_of, input_of, int_of, names_counted
from edgekit.compiler.model.shape_inference import infer_shapes
from edgekit.tensor_spec import Array

Weights = Mapping[tuple[str, int], Array]
"""(first output of a node, input index) -> the constant that replaces this input."""


@dataclass(frozen=True, eq=False)
class _Cut:
    """A copy of the model while channels are removed from it.

    Attributes:
        channels: Its channels, as they were.
        removed: Labels of the removed units.
        dims: Labelled value -> its new shape.
    """

    model: ir.Model
    channels: Channels
    removed: Collection[int]
    dims: dict[ir.Value, tuple[int, ...]]


def remove_channels(model: ir.Model, removed: Collection[int], weights: Weights | None = None) -> ir.Model:
    """Return a copy of the model without some units of its channel groups.

    Args:
        model: The model passed to :func:`find_channels`; it is not changed.
        removed: Labels of units.
        weights: Constants that replace others, uncut.
    """
    pruned = model.clone()
    with names_counted(pruned):
        makers = {str(node.outputs[0].name): node for node in pruned.graph}
        for (name, index), array in (weights or {}).items():
            _set_constant(pruned, makers[name], index, array)
        channels = find_channels(pruned)  # a bias that was added is cut as well
        cut = _Cut(pruned, channels, removed, _new_dims(channels, removed))
        _cut_constants(cut)
        for node in pruned.graph:
            update = _SIZES.get(node.op_type) if not node.domain else None
            if update is not None and any(
                cut.dims.get(v, static_dims(v)) != static_dims(v) for v in _io(node)
            ):
                update(cut, node)
    for node in pruned.graph:
        for value in node.outputs:
            if not value.is_graph_output():
                value.shape = None
    for name, value in list(pruned.graph.initializers.items()):
        if not value.uses() and not value.is_graph_output():
            del pruned.graph.initializers[name]
    infer_shapes(pruned)
    return pruned


def _io(node: ir.Node) -> list[ir.Value]:
    return [*(value for value in node.inputs if value is not None), *node.outputs]


def _new_dims(channels: Channels, removed: Collection[int]) -> dict[ir.Value, tuple[int, ...]]:
    new_dims = {}
    for value, labels in channels.labels.labels.items():
        dims = static_dims(value)
        assert dims is not None
        left = len(channels.remaining(labels.ids, removed))
        new_dims[value] = (*dims[: labels.axis], left, *dims[labels.axis + 1 :])
    return new_dims


def _cut_constants(cut: _Cut) -> None:
    for use in cut.channels.labels.uses:
        remaining, node = cut.channels.remaining(use.ids, cut.removed), use.node
        if len(remaining) == len(use.ids):
            continue
        array = array_of(input_of(node, use.index))
        assert array is not None
        _set_constant(cut.model, node, use.index, np.take(array, remaining, use.axis))
        groups = int_of(node, "group", 1)
        if groups > 1 and use.index == 1:
            node.attributes["group"] = ir.AttrInt64("group", groups * len(remaining) // len(use.ids))


def _reshape(cut: _Cut, node: ir.Node) -> None:
    if node.outputs[0] in cut.dims:
        _set_constant(cut.model, node, 1, np.array(cut.dims[node.outputs[0]], np.int64))


def _resize(cut: _Cut, node: ir.Node) -> None:
    sizes, dims = array_of(input_of(node, 3)), cut.dims.get(node.outputs[0])
    if sizes is not None and dims is not None and len(sizes) == len(dims):
        _set_constant(cut.model, node, 3, np.array(dims, np.int64))


def _split(cut: _Cut, node: ir.Node) -> None:
    axis = cut.channels.labels.labels[node.outputs[0]].axis
    if int_of(node, "axis", 0) % len(cut.dims[node.outputs[0]]) == axis:
        node.attributes.pop("num_outputs", None)
        _set_constant(
            cut.model, node, 1, np.array([cut.dims[value][axis] for value in node.outputs], np.int64)
        )


def _slice(cut: _Cut, node: ir.Node) -> None:
    source = node.inputs[0]
    starts, ends, axes = (array_of(input_of(node, index)) for index in (1, 2, 3))
    assert source is not None
    assert starts is not None
    assert ends is not None
    labels, rank = cut.channels.labels.labels[source], len(static_dims(source) or ())
    named = [int(a) % rank for a in (axes if axes is not None else range(len(starts)))]
    if labels.axis not in named:
        return
    position = named.index(labels.axis)
    begin, end, _ = slice(int(starts[position]), int(ends[position])).indices(len(labels.ids))
    remaining = cut.channels.remaining(labels.ids, cut.removed)
    new_starts, new_ends = starts.copy(), ends.copy()
    new_starts[position], new_ends[position] = (remaining < begin).sum(), (remaining < end).sum()
    _set_constant(cut.model, node, 1, new_starts)
    _set_constant(cut.model, node, 2, new_ends)


_SIZES: dict[str, Callable[[_Cut, ir.Node], None]] = {
    "Reshape": _reshape,
    "Resize": _resize,
    "Split": _split,
    "Slice": _slice,
}
"""Operators with constants that state the size of the labelled axis."""


def _set_constant(model: ir.Model, node: ir.Node, index: int, array: Array) -> None:
    """Give a node a constant of its own; an optional input that it lacks is added."""
    old = input_of(node, index)
    name = str(old.name) if old is not None and old.name else f"{node.outputs[0].name}/{index}"
    if index >= len(node.inputs):
        node.resize_inputs(index + 1)
    node.replace_input_with(index, add_constant(model, np.ascontiguousarray(array), name))
