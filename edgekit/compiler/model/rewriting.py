"""The operations that passes use: read constants, inspect neighbours, replace nodes.

They keep the guarantees of passes: graph inputs and outputs keep their names, types and order; a value with
other consumers, or that is a graph output, is not fused away; a new node has the name of the node it
replaces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TypeVar

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.work_budget import check_time
from edgekit.tensor_spec import Array

PART_OF = "edgekit.part_of"
"""Metadata key of nodes that replace a node: the replaced node's name."""


Match = TypeVar("Match")
Attribute = int | float | str | Sequence[int] | Sequence[float]


def nodes_of(model: ir.Model, *ops: str) -> Iterator[tuple[ir.Graph, ir.Node]]:
    """Yield every node of the default domain with one of these ops, in all graphs; graphs may change during
    iteration."""
    for graph in [model.graph, *model.graph.subgraphs()]:
        for node in list(graph):
            if node.graph is not None and not node.domain and (not ops or node.op_type in ops):
                yield graph, node


def node_pass(*ops: str) -> Callable[[Callable[[ir.Model, ir.Node], bool]], Callable[[ir.Model], bool]]:
    """Make a pass of the rewrite of one node: it visits all nodes with one of these ops."""

    def made(rewrite: Callable[[ir.Model, ir.Node], bool]) -> Callable[[ir.Model], bool]:
        @wraps(rewrite)
        def run(model: ir.Model) -> bool:
            rewritten = [rewrite(model, node) for _, node in nodes_of(model, *ops)]
            return any(rewritten)

        return run

    return made


def rewritten_copy(
    model: ir.Model,
    match: Callable[[ir.Node], Match | None],
    rewrite: Callable[[ir.Model, ir.Node, Match], object],
) -> ir.Model:
    """Return a copy of the model in which every node of the main graph that matches is rewritten, or the
    model itself if none does.

    Args:
        model: It is not changed.
        match: Returns what the rewrite needs to know of a node; a false value for nodes that stay.
        rewrite: Rewrites a node of the copy, in place, given its match.
    """
    if not any(match(node) for node in model.graph):
        return model
    copy = model.clone()
    for node in list(copy.graph):
        if matched := match(node):
            rewrite(copy, node, matched)
    return copy


def array_of(value: ir.Value | None) -> Array | None:
    """Return the array of an initializer, else None."""
    if value is None or value.const_value is None or not value.is_initializer() or value.is_graph_input():
        return None
    if value.const_value.dtype == ir.DataType.STRING:
        return None
    return value.const_value.numpy()


def scalar_of(value: ir.Value | None) -> float | None:
    """Return the number in a constant of one element, else None."""
    array = array_of(value)
    return (
        float(array.reshape(()))
        if array is not None and array.size == 1 and array.dtype.kind in "fiu"
        else None
    )


def input_of(node: ir.Node, index: int) -> ir.Value | None:
    """Return input ``index``; None if it is omitted."""
    return node.inputs[index] if index < len(node.inputs) else None


def int_of(node: ir.Node, name: str, default: int) -> int:
    return node.attributes[name].as_int() if name in node.attributes else default


def float_of(node: ir.Node, name: str, default: float) -> float:
    return node.attributes[name].as_float() if name in node.attributes else default


def text_of(node: ir.Node, name: str, default: str) -> str:
    return node.attributes[name].as_string() if name in node.attributes else default


def ints_of(node: ir.Node, name: str, default: Sequence[int] = ()) -> list[int]:
    return [int(i) for i in (node.attributes[name].as_ints() if name in node.attributes else default)]


def dims_of(value: ir.Value | None) -> tuple[int, ...] | None:
    """Return the static shape of a value, else None."""
    return static_dims(value)


def producer_of(value: ir.Value | None, *ops: str) -> ir.Node | None:
    """Return the producer of a value, if its op is one of these."""
    node = value.producer() if value is not None else None
    return node if node is not None and not node.domain and node.op_type in ops else None


def only_consumer(value: ir.Value) -> ir.Node | None:
    """Return the only consumer of a value that is read once and is not a graph output."""
    uses = list(value.uses())
    return uses[0].node if len(uses) == 1 and not value.is_graph_output() else None


def inner(value: ir.Value | None, user: ir.Node, *ops: str) -> ir.Node | None:
    """Return the producer of ``value`` if it has one of these ops, one output, and only ``user`` reads it.

    Such a node may be fused into ``user``.
    """
    node = producer_of(value, *ops)
    if node is None or value is None or len(node.outputs) != 1 or value.is_graph_output():
        return None
    return node if all(use.node is user for use in value.uses()) and node.graph is user.graph else None


SHARED_FROM_ELEMENTS = 1025
"""Weights of so many elements on are compared with the model's others, so that equal ones exist once. Smaller
ones are merged by compiler/passes/merge_duplicates.py."""


def add_constant(model: ir.Model, array: Array, name: str) -> ir.Value:
    """Add a weight to the main graph and return it; an equal large weight is reused.

    A new one is named ``name`` or, if that is taken, ``name_2``, ``name_3`` ...
    """
    if (equal := equal_weight(model.graph.initializers.values(), array)) is not None:
        return equal
    value = ir.Value(
        name=free_name(model, name),
        type=ir.TensorType(ir.DataType.from_numpy(array.dtype)),
        shape=ir.Shape(array.shape),
        const_value=ir.tensor(array),
    )
    model.graph.initializers.add(value)
    return value


def equal_weight(weights: Iterable[ir.Value], array: Array) -> ir.Value | None:
    """Return the first of a main graph's weights that equals a large array bit for bit, if there is one."""
    if array.size < SHARED_FROM_ELEMENTS or (digest := fingerprint(array)) is None:
        return None
    for value in weights:
        if value.shape is None or value.shape.dims != array.shape or value.is_graph_output():
            continue
        other = array_of(value)
        if other is array or (other is not None and fingerprint(other) == digest and same_bits(other, array)):
            return value
    return None


def fingerprint(array: Array) -> tuple[object, ...] | None:
    """Return a key that is equal for equal arrays, from 64 elements: cheap even for gigabytes of weights.
    :func:`same_bits` compares arrays with equal keys. None if there are no bits to compare."""
    if array.dtype.itemsize > 8 or array.dtype.hasobject or not array.size:
        return None
    places = np.linspace(0, array.size - 1, 64).astype(np.int64)
    return (
        array.dtype.str,
        array.dtype.name,
        array.shape,
        array[np.unravel_index(places, array.shape)].tobytes(),
    )


def same_bits(one: Array, other: Array) -> bool:
    """Return whether two arrays of the same shape and dtype have equal bits: 0.0 and -0.0 differ."""
    bits = f"u{one.dtype.itemsize}"
    return np.array_equal(np.asarray(one).view(bits), np.asarray(other).view(bits))


def free_name(model: ir.Model, name: str) -> str:
    """Return ``name``, with a number appended if a value of the model has that name."""
    free, number, counts = name, 2, model.meta.get(_NAMES)
    # Search the model only for names that were seen before.
    while (counts is None or free in counts) and _is_taken(model, free):
        free, number = f"{name}_{number}", number + 1
    if counts is not None:
        counts[free] += 1
    return free


_NAMES = "edgekit.names"


@contextmanager
def names_counted(model: ir.Model) -> Iterator[Counter[str]]:
    """Count the names of the model, so that ``free_name`` need not search all of it.

    In this context every new name must come from ``free_name`` or be counted by the caller. Removed names
    stay counted.
    """
    if _NAMES in model.meta:
        yield model.meta[_NAMES]
        return
    counts: Counter[str] = Counter()
    for graph in [model.graph, *model.graph.subgraphs()]:
        counts.update(list(graph.initializers))
        counts.update(value.name or "" for value in graph.inputs)
        counts.update(value.name or "" for node in graph for value in node.outputs)
    model.meta[_NAMES] = counts
    try:
        yield counts
    finally:
        del model.meta[_NAMES]


def _is_taken(model: ir.Model, name: str) -> bool:
    check_time("naming what is rewritten")
    for graph in [model.graph, *model.graph.subgraphs()]:
        if name in graph.initializers or any(value.name == name for value in graph.inputs):
            return True
        if any(value.name == name for node in graph for value in node.outputs):
            return True
    return False


def new_node(
    like: ir.Node,
    op: str,
    inputs: Sequence[ir.Value | None],
    attributes: dict[str, Attribute] | None = None,
    name: str | None = None,
) -> ir.Node:
    """Create a node with one output, named like ``like``. It is not yet in the graph."""
    return ir.node(op, inputs, attributes=attributes or {}, name=like.name if name is None else name)


def insert_before(
    model: ir.Model, anchor: ir.Node, node: ir.Node, name: str, like: ir.Value | None = None
) -> ir.Value:
    """Insert a node with one output before ``anchor``. Return its output, named ``name``, with the type and
    shape of ``like``."""
    assert anchor.graph is not None
    value = node.outputs[0]
    value.name = free_name(model, name)
    if like is not None:
        value.type, value.shape = like.type, like.shape
    anchor.graph.insert_before(anchor, node)
    return value


def put_before(
    model: ir.Model,
    anchor: ir.Node,
    op: str,
    inputs: Sequence[ir.Value | None],
    dims: tuple[int, ...],
    name: str,
    dtype: ir.DataType | None = None,
    **attributes: int | float | str | list[int],
) -> ir.Value:
    """Insert a new node before ``anchor``, named after it; its output has the anchor's element type or
    ``dtype``."""
    new = new_node(anchor, op, inputs, dict(attributes), name=f"{anchor.name}/{name}")
    value = insert_before(model, anchor, new, f"{anchor.outputs[0].name}/{name}")
    value.type = anchor.outputs[0].type if dtype is None else ir.TensorType(dtype)
    value.shape = ir.Shape(dims)
    return value


def replace_node(old: ir.Node, new: ir.Node) -> None:
    """Replace ``old`` by ``new``, whose first output gets the name, type and consumers of the old one.

    ``old`` is removed, with all producers that only it needed.
    """
    graph = old.graph
    assert graph is not None
    before, after = old.outputs[0], new.outputs[0]
    after.type, after.shape = before.type, before.shape
    graph.insert_before(old, new)
    before.replace_all_uses_with(after, replace_graph_outputs=True)
    after.name = before.name
    remove_unread(old)


def remove_unread(node: ir.Node) -> None:
    """Remove a node without consumers, and its producers that have no other consumers."""
    unread = [node]
    while unread:
        dead = unread.pop()
        if dead.graph is None or any(value.uses() or value.is_graph_output() for value in dead.outputs):
            continue
        producers = [
            producer for value in dead.inputs if value is not None and (producer := value.producer())
        ]
        dead.graph.remove(dead, safe=True)
        unread += producers


def bypass(node: ir.Node, source: ir.Value) -> bool:
    """Replace the node's first output by ``source`` in all consumers, and remove unused nodes.

    If it is a graph output, ``source`` takes over its name, unless it is an input, a weight or an output
    itself; then nothing changes and the result is False.
    """
    output = node.outputs[0]
    if any(extra.uses() or extra.is_graph_output() for extra in node.outputs[1:]):
        return False
    if output.is_graph_output():
        producer = source.producer()
        if producer is None or producer.graph is not node.graph or source.is_graph_output():
            return False
        output.replace_all_uses_with(source, replace_graph_outputs=True)
        source.name = output.name
    else:
        output.replace_all_uses_with(source)
    remove_unread(node)
    return True


def close_to(value: float | None, target: float, tolerance: float = 1e-6) -> bool:
    """Return whether a constant equals a formula's number, up to float32 rounding by exporters."""
    return value is not None and bool(np.isclose(value, target, rtol=tolerance, atol=tolerance * 1e-2))


def node_name(node: ir.Node) -> str:
    """Return the name of the source node: the node's own, or that of its first output if it has none."""
    if PART_OF in node.metadata_props:
        return node.metadata_props[PART_OF]
    return node.name or next((str(o.name) for o in node.outputs if o.name), node.op_type)


def opset_of(imports: Iterable[tuple[str, int]]) -> int:
    """Return the version of the default ONNX domain in a model's or graph's opset imports."""
    return next((version for domain, version in imports if domain in ("", "ai.onnx")), 1)
