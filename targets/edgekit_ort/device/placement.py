"""The execution provider of each node of an accelerated session, and reasons for the CPU. Device side.

The profile of a run has every kernel that ran, with its provider and its types. Two things need care:

- ONNX Runtime inserts nodes that copy values between the processors. They are counted apart.
- A provider that compiles whole subgraphs runs each of them as one kernel. The nodes inside are those that
  ONNX Runtime assigned to the provider.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.system.onnx_runtime import onnxruntime
from edgekit.target.accelerators import PlacedNode

KERNEL = "_kernel_time"
"""End of the profiler's name of a node's own event."""
COPIES = ("MemcpyToHost", "MemcpyFromHost")
SHORT_TYPES = {"float": "float32", "double": "float64"}


def placed_nodes(
    events: Sequence[Mapping[str, Any]], session: Any, provider: str, label: str
) -> tuple[list[PlacedNode], int]:
    """Return the nodes of one profiled run, and the number of copies between processors."""
    compiled, kernel_types = _nodes_in_subgraphs(session), _kernel_types(provider)
    nodes: list[PlacedNode] = []
    copies = 0
    for event in events:
        if event.get("cat") != "Node" or not str(event["name"]).endswith(KERNEL):
            continue
        facts = event["args"]
        op, placed_on = str(facts.get("op_name", "")), str(facts.get("provider", ""))
        if op in COPIES:
            copies += 1
        elif placed_on in compiled:
            nodes += compiled[placed_on]
            compiled[placed_on] = []  # counted with the first subgraph
        else:
            reason = "" if placed_on == provider else _reason(op, facts, label, kernel_types)
            nodes.append(PlacedNode(str(event["name"]).removesuffix(KERNEL), op, placed_on, reason))
    return nodes, copies


def _nodes_in_subgraphs(session: Any) -> dict[str, list[PlacedNode]]:
    try:
        parts = session.get_provider_graph_assignment_info()
    except Exception:  # before 1.24, or not recorded: onnxruntime's classes share no root but this one
        return {}
    nodes: dict[str, list[PlacedNode]] = {}
    several = set()
    for part in parts:
        subgraph = [PlacedNode(node.name, node.op_type, part.ep_name) for node in part.get_nodes()]
        nodes.setdefault(part.ep_name, []).extend(subgraph)
        several |= {part.ep_name} if len(subgraph) > 1 else set()
    return {provider: nodes[provider] for provider in several}


def _kernel_types(provider: str) -> dict[str, set[str]] | None:
    """Return operator -> the types that a plug-in's kernels take; None if the provider does not list them."""
    look = getattr(
        onnxruntime("reading kernels", "ort").capi._pybind_state, "get_registered_ep_kernel_defs", None
    )
    try:
        kernels = look(provider) if look is not None else []
    except Exception:  # it is not a plug-in; onnxruntime raises a dozen classes without another root
        return None
    types: dict[str, set[str]] = {}
    for kernel in kernels:
        of_operator = types.setdefault(str(kernel.op_name), set())
        for names in kernel.type_constraints.values():
            of_operator.update(name.removeprefix("tensor(").removesuffix(")") for name in names)
    return types or None


def _reason(
    op: str, facts: Mapping[str, Any], label: str, kernel_types: Mapping[str, set[str]] | None
) -> str:
    """Return why a node runs on the CPU, as far as the provider's list of kernels tells."""
    if kernel_types is None:
        return f"{label} does not take this {op}; it gives no reason"
    if op not in kernel_types:
        return f"{label} has no kernel for {op}"
    ends = [*facts.get("input_type_shape", ()), *facts.get("output_type_shape", ())]
    used = dict.fromkeys(name for end in ends for name in end)
    refused = [SHORT_TYPES.get(name, name) for name in used if name not in kernel_types[op]]
    if refused:
        return f"{label}'s {op} does not take {' or '.join(refused)}"
    return f"{label} has a kernel for {op}; ONNX Runtime placed the node on the CPU"
