"""Search for the nodes that keep ONNX Runtime from loading a model.

Its own error names only the first one. So each node is loaded in a model of its own: the engine reports
every missing kernel at once, whatever its version and build.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.compiler.lowering.node_probes import probes
from edgekit.diagnostics import Finding
from edgekit.errors import EngineError
from edgekit_ort.run import open_session

if TYPE_CHECKING:
    import onnx


def failing_nodes(content: bytes, target: str, message: str) -> list[Finding]:
    """Return a finding for each node that ONNX Runtime does not load alone.

    Args:
        content: The model that was refused, serialized with the shapes of its values.
        target: The target or profile named in the findings.
        message: ONNX Runtime's error for the whole model; the finding when each node alone is accepted.
    """
    import onnx

    model = onnx.ModelProto.FromString(content)
    findings = []
    refusals: dict[bytes, str | None] = {}
    for node, probe in probes(model):
        key = probe.SerializeToString(deterministic=True)
        if key not in refusals:
            refusals[key] = _refusal(key)
        refusal = refusals[key]
        if refusal is None:
            continue
        op = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        missing = "NOT_IMPLEMENTED" in refusal or "is not a registered function/op" in refusal
        findings.append(
            Finding(
                "EK1001" if missing else "EK1002",
                "error",
                target,
                node.name,
                op,
                f"no CPU kernel for {_types(probe)}" if missing else _plain(refusal),
            )
        )
    return findings or [Finding("EK1002", "error", target, "", "", _plain(message))]


def _refusal(model: bytes) -> str | None:
    try:
        open_session(model, threads=1, optimize=False)
    except EngineError as problem:
        return str(problem)
    return None


def _types(probe: onnx.ModelProto) -> str:
    from onnx import TensorProto

    kinds = {value.name: value.type.tensor_type.elem_type for value in probe.graph.input}
    kinds.update({tensor.name: tensor.data_type for tensor in probe.graph.initializer})
    names = [TensorProto.DataType.Name(kinds[n]).lower() for n in probe.graph.node[0].input if n in kinds]
    return ", ".join(names) or "no inputs"


def _plain(message: str) -> str:
    """Return ONNX Runtime's message on one line, without ``[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : ``."""
    line = " ".join(message.split())
    return line.rpartition("[ONNXRuntimeError] : ")[2].split(" : ", 2)[-1]
