"""Acceptance check by TFLite Micro itself: a run on zeros, if the interpreter is installed.

Its kernels support fewer element types and forms than TFLite's, and name a node they can't prepare or run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import onnx_ir as ir

from edgekit.compiler.model.rewriting import node_name
from edgekit.diagnostics import Finding
from edgekit.errors import EngineError, MissingDependency
from edgekit.target import Artifact
from edgekit_tflm import run
from edgekit_tflm.kernels import KERNELS

PREPARED = re.compile(
    r"Node (?P<op>\w+) \(number (?P<number>\d+)f?\) failed to (?:prepare|initialize|invoke)"
)
"""tensorflow/lite/micro/micro_interpreter_graph.cc."""
UNSIZED = re.compile(r"Op#(?P<number>\d+) \((?P<op>\w+)\) of subgraph 0 has dynamic tensor")
"""python/tflite_micro/interpreter_wrapper.cc, of what is sized at run time, and of what has no elements."""
SOURCE = re.compile(r"\S+\.(?:cc|h):\d+ ?")
"""Where in TFLM's code a condition stands: its text is what is told."""


def compared_without_scales(model: ir.Model, target: str) -> list[Finding]:
    """Return findings for Greater on int16: its kernel reads scales from memory even if there are none."""
    return [
        Finding(
            "EK1004", "error", target, node_name(node), "Greater",
            "TFLite Micro's GREATER compares int16 by its scale, and these have none",
        )
        for node in model.graph
        if node.op_type == "Greater" and (value := node.inputs[0]) and value.dtype == ir.DataType.INT16
    ]  # fmt: skip


def refusals(artifact: Artifact, nodes: Sequence[tuple[str, str]], target: str) -> list[Finding]:
    """Return a finding for each node that TFLM has no kernel for or rejects; empty if the file runs.

    ``nodes``: operator and ONNX node of each operator of the file, in order.
    """
    without = {node: code for code, node in nodes if code not in KERNELS}
    if without:
        return [
            Finding("EK1001", "error", target, node, code, f"TFLite Micro has no kernel for {code}")
            for node, code in without.items()
        ]
    try:
        run.try_once(bytes(artifact.files[run.FILE]), artifact.options["inputs"])
    except MissingDependency:
        return []
    except EngineError as problem:
        match = UNSIZED.search(str(problem)) or PREPARED.search(str(problem))
        if match is None or int(match["number"]) >= len(nodes):
            return []  # verification tells it
        code, node = nodes[int(match["number"])]
        if match.re is UNSIZED:
            reason = f"TFLite Micro's {code} has an empty input or output, which it does not support"
            return [Finding("EK1002", "error", target, node, code, reason)]
        message = SOURCE.sub("", str(problem)[: match.start()].partition(": ")[2]).strip()
        reason = f"TFLite Micro's {code} does not support it" + (f": {message}" if message else "")
        return [Finding("EK1002", "error", target, node, code, reason)]
    return []
