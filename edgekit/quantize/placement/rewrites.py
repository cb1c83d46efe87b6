"""Exact rewrites of the float graph that make it computable on integers, where a target's rules ask for them.

A rewrite takes the canonical graph with its observations and gives another graph, of the same meaning, with
observations of all its values: nothing is run again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set

import onnx_ir as ir

from edgekit.passes.remove_dead_code import remove_dead_code
from edgekit.quantize.observe.observers import Observation
from edgekit.quantize.placement.kernels import find_kernels, node_name
from edgekit.quantize.placement.linear_gates import linear_gates
from edgekit.quantize.placement.split_silu import split_silu
from edgekit.target.quant_rules import Rules

Observed = Mapping[str, Observation]
Rewrite = Callable[[ir.Model, dict[str, Observation], Rules, Set[str]], bool]

REWRITES: Mapping[str, Rewrite] = {"linear gates": linear_gates, "split SiLU": split_silu}
"""Name in ``Rules.rewrites`` -> the rewrite: in place, of the nodes that are named; True if there was one."""


def rewritten(
    model: ir.Model, observations: Observed, rules: Rules, float_nodes: Collection[str] = frozenset()
) -> tuple[ir.Model, Observed]:
    """The graph that a plan is made for. Only what will compute on integers is rewritten.

    Args:
        model: The canonical float graph. It is not changed.
        observations: Of its values.
        rules: Of the target.
        float_nodes: Names of nodes that are to stay float, in this graph; they are called the same in the
            new one.

    Returns:
        A rewritten copy with its observations, or what was given where nothing is to rewrite.
    """
    copy, observed = model.clone(), dict(observations)
    kernels = find_kernels(copy, rules, float_nodes)
    integer = {node_name(node) for kernel in kernels for node in kernel.nodes}
    changed = [REWRITES[name](copy, observed, rules, integer) for name in rules.rewrites]
    if not any(changed):
        return model, observations
    remove_dead_code(copy)
    return copy, observed
