"""The next step of a finding: the owner of a private op, and whether ONNX Runtime runs a refused node."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import onnx_ir as ir

from edgekit.compiler.model.contributed_shapes import is_loaded
from edgekit.compiler.model.private_ops import is_private, way_out
from edgekit.compiler.model.rewriting import node_name
from edgekit.diagnostics import Finding

ELSEWHERE = "build it for ort"
"""The next step that targets name; it is dropped if ONNX Runtime has no kernel for the node."""


def with_ways_out(model: ir.Model, findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings with the next step for each node that stops a build."""
    nodes = {node_name(node): node for node in model.graph.all_nodes()}
    opsets = dict(model.graph.opset_imports)
    results = []
    for finding in findings:
        node = nodes.get(finding.node)
        if finding.severity == "error" and node is not None and is_private(node):
            owner, fix = way_out(node, opsets)
            finding = replace(finding, message=f"{finding.message}; it {owner}", fix=fix)
        elif ELSEWHERE in finding.fix and node is not None and is_loaded(node, opsets) is False:
            steps = [step for step in finding.fix.split(", or ") if step != ELSEWHERE]
            finding = replace(finding, fix=", or ".join(steps))
        results.append(finding)
    return results
