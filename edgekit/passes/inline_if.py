"""An If becomes the branch that is taken, where that is known.

    cond = weight True
    If(cond) then { y = Relu(x) } else { y = Neg(x) } -> z     =>     Relu(x) -> z

Known it is where the condition is a weight, and where the other branch cannot work on the shapes of this
model: a speech model with branches for 8 and 16 kHz, opened for frames of 16 kHz, fails whenever the branch
for 8 kHz is taken. The branch's nodes come out in its place; what they compute from weights alone is folded
at once, as it may decide the next If (exporters write one for every squeeze of a dynamic axis).
"""

from __future__ import annotations

import onnx_ir as ir

from edgekit.passes.fold_constants import fold_constants
from edgekit.passes.rewriting import array_of, free_name, nodes_of
from edgekit.shape_inference import infer_shapes


def inline_if(model: ir.Model) -> bool:
    """Inline every If whose branch is known, until there is none left."""
    changed = False
    while any(True for _ in nodes_of(model, "If")):
        impossible = infer_shapes(model).impossible
        inlined = False
        for graph, node in nodes_of(model, "If"):
            branch = _taken(node, impossible)
            if branch is not None:
                _inline(model, graph, node, branch)
                inlined = True
        if not inlined:
            break
        changed = True
        fold_constants(model)
    return changed


def _taken(node: ir.Node, impossible: dict[ir.Graph, str]) -> ir.Graph | None:
    branches = [node.attributes[name].as_graph() for name in ("then_branch", "else_branch")]
    condition = array_of(node.inputs[0])
    if condition is not None and condition.size == 1:
        return branches[0] if condition.item() else branches[1]
    possible = [branch for branch in branches if branch not in impossible]
    return possible[0] if len(possible) == 1 else None


def _inline(model: ir.Model, graph: ir.Graph, node: ir.Node, branch: ir.Graph) -> None:
    results = list(branch.outputs)
    branch.outputs.clear()
    for name, weight in list(branch.initializers.items()):
        del branch.initializers[name]
        weight.name = free_name(model, name)
        graph.initializers.add(weight)
    children = list(branch)
    inside = [value for child in _with_nested(children) for value in child.outputs]
    # Both branches, or two Ifs, may use one name for two values; in one graph each needs its own.
    ends_here = {id(value) for child in _with_nested([node]) for value in child.outputs}
    others = (value for other in model.graph.all_nodes() for value in other.outputs)
    outside = {value.name for value in others if id(value) not in ends_here}
    outside |= {value.name for value in [*model.graph.inputs, *node.outputs]}
    for child in children:
        branch.remove(child)
        graph.insert_before(node, child)
    for value in inside:
        if value.name in outside:
            value.name = free_name(model, value.name or "value")
    for output, result in zip(node.outputs, results, strict=True):
        if not output.is_graph_output():
            output.replace_all_uses_with(result)
            continue
        copy = ir.node("Identity", [result], name=f"{node.name}/{output.name}")
        copy.outputs[0].type, copy.outputs[0].shape = output.type, output.shape
        graph.insert_before(node, copy)
        output.replace_all_uses_with(copy.outputs[0], replace_graph_outputs=True)
        copy.outputs[0].name, output.name = output.name, None
    graph.remove(node, safe=True)


def _with_nested(nodes: list[ir.Node]) -> list[ir.Node]:
    found = []
    for node in nodes:
        found.append(node)
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                found += list(attribute.as_graph().all_nodes())
    return found
