"""Search for the nodes that the compiler rejects alone: its errors rarely name nodes, or it crashes.

Each node is built as its own model. Nodes of Q/DQ pairs, and those that multiply by dequantized weights, are
left out, because they mean something else alone.
"""

from __future__ import annotations

import onnx_ir as ir

from edgekit.compiler.lowering.node_probes import probes
from edgekit.compiler.model.onnx_file import save_model
from edgekit.compiler.model.rewriting import node_name
from edgekit.compiler.toolchains.child import ToolchainChild
from edgekit.compiler.toolchains.environment import Environment
from edgekit.diagnostics import Finding
from edgekit.errors import EngineError
from edgekit.target.profile import Profile
from edgekit_rknn import simulator
from edgekit_rknn.run import SOURCE_FILE
from edgekit_rknn.toolchain import VERSION

PAIR = ("QuantizeLinear", "DequantizeLinear")
EVERY_CONSTANT = 1 << 40
"""Weights go into a probe too: a Conv that reads them from an input is another node."""
SECONDS = 120.0
"""For one node; most take less than one second."""


def refused_alone(model: ir.Model, profile: Profile, environment: Environment) -> list[Finding]:
    """Return a finding for each node that the compiler rejects alone; empty if it accepts all of them.
    ``model`` is the model as given to the compiler."""
    import onnx

    proto = onnx.ModelProto.FromString(save_model(model))
    constants = {tensor.name for tensor in proto.graph.initializer}
    from_constants = {
        node.output[0] for node in proto.graph.node if node.op_type in PAIR and node.input[0] in constants
    }
    names = {node.name: node_name(node) for node in model.graph}
    platform = profile.facts["accelerator"].value
    refused: dict[bytes, bool] = {}
    findings: dict[str, Finding] = {}
    child = ToolchainChild(environment, simulator.CHILD)
    try:
        for node, probe in probes(proto, EVERY_CONSTANT):
            if node.op_type in PAIR or from_constants.intersection(node.input):
                continue
            content = probe.SerializeToString(deterministic=True)
            if content not in refused:
                try:
                    (child.folder / SOURCE_FILE).write_bytes(content)
                    child.ask({"do": "build", "platform": platform, "simulate": False}, SECONDS)
                    refused[content] = False
                except EngineError:  # a child that has died can't be asked again
                    refused[content] = True
                    child.close()
                    child = ToolchainChild(environment, simulator.CHILD)
            if refused[content]:
                name = names.get(node.name, node.name)
                text = f"{VERSION} refuses this form of it"
                findings[name] = Finding("EK1002", "error", profile.name, name, node.op_type, text)
    finally:
        child.close()
    return list(findings.values())
