"""Replaces an If by the branch that is taken, if that is known.

    cond = weight True
    If(cond) then { y = Relu(x) } else { y = Neg(x) } -> z     =>     Relu(x) -> z

It is known if the condition is a weight, or if the other branch is invalid for the shapes of this model: a
speech model with branches for 8 and 16 kHz, opened for frames of 16 kHz, fails in the branch for 8 kHz.
Constants of the inlined nodes are folded at once, because they may decide the next If (exporters write one
for every squeeze of a dynamic axis).
"""

from __future__ import annotations

import onnx_ir as ir

from edgekit.compiler.model.rewriting import array_of, names_counted, nodes_of
from edgekit.compiler.model.shape_inference import infer_shapes
from edgekit.compiler.model.work_budget import check_time
from edgekit.compiler.passes.fold_constants import fold_constants
from edgekit.compiler.passes.inline_body import hand_over, inline_body


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
