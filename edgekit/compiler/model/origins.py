"""Source nodes of each canonical node, found by the value names that the passes keep.

A pass replaces nodes but keeps the names of the values that they produce (rewriting.py). So a value that a
canonical node produces has a producer in the source model too. That producer became the canonical node,
together with the nodes before it, up to the next values that the canonical graph still has:

    source      x -> Conv -> BatchNormalization -> Relu -> y         canonical   x -> Conv -> Relu -> y
                        a                       b                                          b
    Conv        {Conv, BatchNormalization}: both graphs have b, only the source has a
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import onnx
import onnx_ir as ir

from edgekit.bundle.source_names import scope_in_name
from edgekit.compiler.model.rewriting import node_name
from edgekit.tensor_spec import Json

TORCH_SCOPES = "pkg.torch.onnx.name_scopes"
"""Metadata of nodes by PyTorch's exporter: repr() of a list of the modules' paths, from "" to the call itself
(torch/onnx/_internal/exporter/_core.py)."""
SCOPES = "edgekit.scopes"
"""Key of an opened model's ``meta``: what ``recorded_scopes`` found in its file."""
MAX_SCOPE_CHARS = 500
"""Maximum length of a scope, in characters; longer ones are left out."""


def source_names(source: ir.Model, canonical: ir.Model) -> Json:
    """Return the table that edgekit/bundle/source_names.py reads."""
    makers: dict[str, ir.Node] = {}
    for node in [*source.graph.all_nodes(), *source.graph]:  # of two with one name that of the main graph
        makers |= {str(value.name): node for value in node.outputs if value.name}
    named = {node_name(node): node for node in source.graph.all_nodes()}
    origins = _origins(canonical.graph, makers, named)
    order = {node: number for number, node in enumerate(source.graph.all_nodes())}
    used = sorted({node for nodes in origins.values() for node in nodes}, key=order.__getitem__)
    index = {node: number for number, node in enumerate(used)}
    place = {node: number for number, node in enumerate(canonical.graph)}
    nodes = []
    for node in canonical.graph:
        name, called = node_name(node), origins[node]
        values = [str(value.name) for value in node.outputs if value.name and value.name != name]
        same = bool(called) and node_name(called[0]) == name
        makes = (value.producer() for value in node.inputs if value is not None)
        reads = list(dict.fromkeys(place[maker] for maker in makes if maker in place))
        nodes.append(["" if same else name, values, [index[source_node] for source_node in called], reads])
    scopes = source.meta.get(SCOPES, {})
    return {"source": [_row(node, scopes) for node in used], "nodes": nodes}


def _row(node: ir.Node, scopes: Mapping[str, str]) -> list[str]:
    name = node_name(node)
    scope = scopes.get(name, "")
    return [name, node.op_type, *([scope] if scope and scope != scope_in_name(name) else [])]


def _origins(
    graph: ir.Graph, makers: dict[str, ir.Node], named: dict[str, ir.Node]
) -> dict[ir.Node, list[ir.Node]]:
    """Return the source nodes of each canonical node, first the one that produces its value."""
    value_names = {str(value.name) for node in graph for value in node.outputs}
    value_names |= {str(value.name) for value in graph.inputs} | set(graph.initializers)
    origins: dict[ir.Node, list[ir.Node]] = {}
    for node in reversed(graph):
        roots = [makers[str(v.name)] for v in node.outputs if v.name in makers]
        if roots:
            origins[node] = _merged(roots, value_names)
        elif (part_of := _named_before(node_name(node), named)) is not None:
            origins[node] = [part_of]
        else:  # made for what comes after it
            readers = (use.node for value in node.outputs for use in value.uses())
            origins[node] = next((origins[reader] for reader in readers if reader in origins), [])
    return origins


def _merged(roots: Iterable[ir.Node], values: set[str]) -> list[ir.Node]:
    """Return the roots and all nodes before them up to values that the passes kept, without constants."""
    merged: dict[ir.Node, None] = {}
    waiting = list(roots)
    for node in waiting:  # grows as it goes
        if node in merged:
            continue
        merged[node] = None
        for value in node.inputs:
            maker = value.producer() if value is not None and value.name not in values else None
            if maker is not None and maker.op_type != "Constant":
                waiting.append(maker)
    return list(merged)


def _named_before(name: str, named: dict[str, ir.Node]) -> ir.Node | None:
    """Return the source node with this name or a prefix of it: Einsum_3 for ``Einsum_3/product``."""
    while name:
        if name in named:
            return named[name]
        name = name.rpartition("/")[0]
    return None


def recorded_scopes(proto: onnx.ModelProto) -> dict[str, str]:
    """Return the module that called each node, as recorded by PyTorch's exporter in its metadata."""
    scope_by_node = {}
    for node in proto.graph.node:
        recorded = next((entry.value for entry in node.metadata_props if entry.key == TORCH_SCOPES), "")
        scopes = re.findall(r"'([^']*)'", recorded) if isinstance(recorded, str) else []
        if len(scopes) > 1 and 0 < len(scopes[-2]) <= MAX_SCOPE_CHARS and scopes[-2].isprintable():
            scope_by_node[node.name] = scopes[-2]
    return scope_by_node
