"""Exact rewrites of the float graph that let more nodes run in int8, as selected by a target's rules.

A rewrite returns an equivalent graph with observations of all its values; nothing is run again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set

import onnx_ir as ir

from edgekit.compiler.passes.remove_dead_code import remove_dead_code
from edgekit.compiler.quantize.observe.observers import Observation
from edgekit.compiler.quantize.placement.kernels import find_kernels, node_name
from edgekit.compiler.quantize.placement.linear_gates import linear_gates
from edgekit.compiler.quantize.placement.split_silu import split_silu
from edgekit.target.quant_rules import Rules

Observed = Mapping[str, Observation]
Rewrite = Callable[[ir.Model, dict[str, Observation], Rules, Set[str]], bool]

REWRITES: Mapping[str, Rewrite] = {"linear gates": linear_gates, "split SiLU": split_silu}
"""Name in ``Rules.rewrites`` -> the rewrite of the named nodes, in place; True if anything changed."""


def rewritten(
    model: ir.Model, observations: Observed, rules: Rules, float_nodes: Collection[str] = frozenset()
) -> tuple[ir.Model, Observed]:
    """Return the graph that a plan applies to, with its observations. Only nodes that will run in int8 are
    rewritten.

    Args:
        model: The canonical float graph. It is not changed.
        observations: Observations of its values.
        rules: The target's rules.
        float_nodes: Names of nodes to keep in float; they have the same names in the new graph.

    Returns:
        A rewritten copy with its observations, or the arguments if there is nothing to rewrite.
    """
    copy, observed = model.clone(), dict(observations)
    kernels = find_kernels(copy, rules, float_nodes)
    integer = {node_name(node) for kernel in kernels for node in kernel.nodes}
    changed = [REWRITES[name](copy, observed, rules, integer) for name in rules.rewrites]
    if not any(changed):
        return model, observations
    remove_dead_code(copy)
    return copy, observed
