"""The part of a model that ncnn computes: what has inputs that are read, and outputs that are computed.

unused input ->                          left out: pnnx ends with a signal
x -> Identity -> y                       y is x, which the runner copies
a -> Identity -> first, second           both are a
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edgekit.compiler.model.node_checks import static_dims

if TYPE_CHECKING:
    import onnx_ir as ir

Ports = dict[str, tuple[str, tuple[int, ...]]]


class FloatNetwork(NamedTuple):
    """A model to convert.

    Attributes:
        model: A copy.
        inputs: Name in the source model -> what pnnx calls it, and its shape.
        outputs: The same; an output that is an input has the input's name.
    """

    model: ir.Model
    inputs: Ports
    outputs: Ports


def float_network(model: ir.Model) -> FloatNetwork:
    """The network of a canonical model, which is not changed."""
    copy = model.clone()
    graph = copy.graph
    wanted = {str(value.name): _origin(value) for value in graph.outputs}
    shapes = {str(value.name): static_dims(value) or () for value in (*graph.inputs, *graph.outputs)}
    graph.outputs.clear()
    graph.outputs.extend(dict.fromkeys(v for v in wanted.values() if v.producer() is not None))
    for node in reversed(list(graph)):
        if not any(value.uses() or value.is_graph_output() for value in node.outputs):
            graph.remove(node, safe=True)
    for value in list(graph.inputs):
        if not value.uses():
            graph.inputs.remove(value)
    blobs = {value: f"out{index}" for index, value in enumerate(graph.outputs)}
    inputs = {str(value.name): (f"in{k}", shapes[str(value.name)]) for k, value in enumerate(graph.inputs)}
    outputs = {name: (blobs.get(value, str(value.name)), shapes[name]) for name, value in wanted.items()}
    return FloatNetwork(copy, inputs, outputs)


def _origin(value: ir.Value) -> ir.Value:
    """What an Identity copies."""
    node = value.producer()
    while node is not None and node.op_type == "Identity" and not node.domain and node.inputs[0] is not None:
        value = node.inputs[0]
        node = value.producer()
    return value
