"""Constant folding: replaces constant values by weights.

    shape of x -> Gather -> Concat -> Reshape.shape          [1, -1, 85] -> Reshape.shape
    Constant ------------------------> Add.b           =>    weight -----> Add.b
    weight -> Transpose -------------> MatMul.b               weight' ----> MatMul.b

Layers that share a weight share what is computed of it, too: ten Transposes of one weight become one weight,
and an Identity of a weight is that weight.

Computed by ONNX Runtime, one node at a time, for the same numbers as the reference. Not folded:
QuantizeLinear and DequantizeLinear (a quantized weight would become float), random ops, and results over 1
MiB that are more than twice the size of their inputs (Expand, Tile, ConstantOfShape).

onnxscript's FoldConstantsPass is not used: it infers shapes by its own symbolic rules only, and does not fold
Paddle's shape chains; its import alone takes 0.2 s.
"""

from __future__ import annotations

import onnx_ir as ir

from edgekit.compiler.model.rewriting import SHARED_FROM_ELEMENTS, free_name, names_counted
from edgekit.compiler.model.shape_inference import constant_tensor, infer_shapes
from edgekit.compiler.passes.remove_dead_code import remove_dead_code
from edgekit.tensor_spec import Array

LIMIT_BYTES = 1024 * 1024
GROWTH = 2.0


def fold_constants(model: ir.Model) -> bool:
    """Infer all shapes, then replace every node with constant results by weights."""
    constants = infer_shapes(model, LIMIT_BYTES, GROWTH).constants
    changed = False
    weights: dict[int, ir.Value] = {}
    with names_counted(model):
        for graph in [model.graph, *model.graph.subgraphs()]:
            for node in list(graph):
                if node.op_type == "Constant" and not node.domain:
                    changed |= _lift(model, graph, node, constant_tensor(node))
                elif node.outputs and all(output in constants for output in node.outputs):
                    changed |= _fold(model, graph, node, constants, weights)
    return remove_dead_code(model) or changed


def _fold(
    model: ir.Model,
    graph: ir.Graph,
    node: ir.Node,
    constants: dict[ir.Value, Array],
    weights: dict[int, ir.Value],
) -> bool:
    """Replace a node by weights.

    ``weights``: ``id`` of a large array of ``constants`` -> the main graph's weight that holds it;
    new ones are added.
    """
    if node.op_type == "Identity" and node.outputs[0].is_graph_output():
        return False  # what is left of an output that is the same in every run
    for output in node.outputs:
        array = constants[output]
        if output.is_graph_output():
            _constant_output(model, graph, node, output, ir.tensor(array))
        elif (
            node.op_type == "Identity" and (source := node.inputs[0]) is not None and source.is_initializer()
        ):
            output.replace_all_uses_with(source)
        elif id(array) in weights:
            output.replace_all_uses_with(weights[id(array)])
        else:
            weight = _become_weight(graph, output, ir.tensor(array))
            if weight is not None and graph is model.graph and array.size >= SHARED_FROM_ELEMENTS:
                weights[id(array)] = weight
    graph.remove(node, safe=True)
    return True


def _lift(model: ir.Model, graph: ir.Graph, node: ir.Node, tensor: ir.TensorProtocol | None) -> bool:
    output = node.outputs[0]
    if tensor is None or tensor.dtype == ir.DataType.STRING:
        return False
    if output.is_graph_output():
        _constant_output(model, graph, node, output, ir.tensor(tensor.numpy()))
        graph.remove(node, safe=True)
        return True
    _become_weight(graph, output, ir.tensor(tensor.numpy()))
    graph.remove(node, safe=True)
    return True


def _constant_output(
    model: ir.Model, graph: ir.Graph, node: ir.Node, output: ir.Value, tensor: ir.TensorProtocol
) -> None:
    value = ir.Value(
        name=free_name(model, f"{output.name}/value"),
        type=ir.TensorType(tensor.dtype),
        shape=ir.Shape(tensor.shape.numpy()),
        const_value=tensor,
    )
    graph.initializers.add(value)
    name = node.name if output is node.outputs[0] else f"{node.name}/{output.name}"
    identity = ir.node("Identity", [value], name=name)
    identity.outputs[0].type, identity.outputs[0].shape = value.type, value.shape
    graph.insert_before(node, identity)
    output.replace_all_uses_with(identity.outputs[0], replace_graph_outputs=True)
    identity.outputs[0].name, output.name = output.name, None


def _become_weight(graph: ir.Graph, output: ir.Value, tensor: ir.TensorProtocol) -> ir.Value | None:
    if not output.uses():
        return None
    weight = ir.Value(
        name=output.name,
        type=ir.TensorType(tensor.dtype),
        shape=ir.Shape(tensor.shape.numpy()),
        const_value=tensor,
    )
    output.name = (
        f"{output.name}/folded"  # it leaves the graph; two values of one name would confuse until then
    )
    graph.initializers.add(weight)
    output.replace_all_uses_with(weight)
    return weight
