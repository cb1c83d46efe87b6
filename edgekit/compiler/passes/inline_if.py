"""Replaces an If by the branch that is taken, if that is known.

    cond = weight True
    If(cond) then { y = Relu(x) } else { y = Neg(x) } -> z     =>     Relu(x) -> z

It is known if the condition is a weight, or if the other branch is invalid for the shapes of this model: a
speech model with branches for 8 and 16 kHz, opened for frames of 16 kHz, fails in the branch for 8 kHz.
Constants of the inlined nodes are folded at once, because they may decide the next If (exporters write one
for every squeeze of a dynamic axis).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import onnx_ir as ir

from edgekit.compiler.model.rewriting import array_of, free_name, names_counted, nodes_of
from edgekit.compiler.model.shape_inference import infer_shapes
from edgekit.compiler.model.work_budget import check_time
from edgekit.compiler.passes.fold_constants import fold_constants


def inline_if(model: ir.Model) -> bool:
    """Inline every If whose branch is known, repeatedly."""
    changed = False
    while any(True for _ in nodes_of(model, "If")):
        impossible = infer_shapes(model).impossible
        inlined = False
        with names_counted(model):
            for graph, node in nodes_of(model, "If"):
                check_time("taking the branches of its Ifs that are known")
                branch = _constant_branch(node, impossible)
                if branch is not None:
                    hand_over(graph, node, inline_body(model, graph, node, branch))
                    inlined = True
        if not inlined:
            break
        changed = True
        fold_constants(model)
    return changed


def _constant_branch(node: ir.Node, impossible: dict[ir.Graph, str]) -> ir.Graph | None:
    branches = [node.attributes[name].as_graph() for name in ("then_branch", "else_branch")]
    condition = array_of(node.inputs[0])
    if condition is not None and condition.size == 1:
        return branches[0] if condition.item() else branches[1]
    possible = [branch for branch in branches if branch not in impossible]
    return possible[0] if len(possible) == 1 else None


def inline_body(
    model: ir.Model,
    graph: ir.Graph,
    node: ir.Node,
    body: ir.Graph,
    inputs: Sequence[ir.Value] = (),
    ending: bool = True,
) -> list[ir.Value]:
    """Move the body's nodes and weights before ``node``; the body is empty afterwards.

    Args:
        body: A branch, or a copy of a loop's body.
        ending: Whether the node is removed afterwards, with the names of its subgraphs.
    """
    replaced = dict(zip(body.inputs, inputs, strict=True))
    results = [replaced.get(result, result) for result in body.outputs]
    body.outputs.clear()
    for value, outer in replaced.items():
        value.replace_all_uses_with(outer)
    for name, weight in list(body.initializers.items()):
        del body.initializers[name]
        weight.name = free_name(model, name)
        graph.initializers.add(weight)
    children = list(body)
    inner_values = [value for child in _with_nested(children) for value in child.outputs]
    with names_counted(model) as counts:
        local = Counter(value.name or "" for child in _with_nested([node]) for value in child.outputs)
        if not ending:
            counts.update(value.name or "" for value in inner_values)
            local = Counter(value.name or "" for value in inner_values)
        suspect = any(counts[name] > local[name] for value in inner_values if (name := value.name or ""))
    # Branches and Ifs may use the same name for different values; in one graph names must be unique.
    outside = _names_outside(model, node, ending) if suspect else {value.name for value in node.outputs}
    for child in children:
        body.remove(child)
        graph.insert_before(node, child)
    for value in inner_values:
        if value.name in outside:
            value.name = free_name(model, value.name or "value")
    return results


def hand_over(graph: ir.Graph, node: ir.Node, results: Sequence[ir.Value]) -> None:
    """Replace the node's outputs by these values and remove the node; graph outputs keep their names."""
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


def _names_outside(model: ir.Model, node: ir.Node, ending: bool) -> set[str | None]:
    check_time("naming what is rewritten")
    ends_here = {id(value) for child in _with_nested([node]) for value in child.outputs} if ending else set()
    others = (value for other in model.graph.all_nodes() for value in other.outputs)
    outside = {value.name for value in others if id(value) not in ends_here}
    return outside | {value.name for value in [*model.graph.inputs, *node.outputs]}


def _with_nested(nodes: list[ir.Node]) -> list[ir.Node]:
    nested = []
    for node in nodes:
        nested.append(node)
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                nested += list(attribute.as_graph().all_nodes())
    return nested
