"""Which nodes keep ONNX Runtime from loading a model.

Its own error names the first one only. So each node is put into a model of its own and that is loaded: the
engine itself says what it has no kernel for, whatever its version and build, and all of it at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.errors import EngineError
from edgekit.findings import Finding
from edgekit_ort.run import open_session

if TYPE_CHECKING:
    import onnx

INLINED_ELEMENTS = 1024
"""Constants up to this size go into the probe (axes, shapes, scales: kernels read them at load); larger ones
are weights and become inputs."""


def failing_nodes(content: bytes, target: str, message: str) -> list[Finding]:
    """A finding for each node that ONNX Runtime does not load alone.

    Args:
        content: The model that was refused, serialized with the shapes of its values.
        target: The target or profile that the findings speak for.
        message: What ONNX Runtime said about the whole model; the finding when each node alone is accepted.
    """
    import onnx

    model = onnx.ModelProto.FromString(content)
    found = []
    refusals: dict[bytes, str | None] = {}
    for node, probe in _probes(model):
        key = probe.SerializeToString(deterministic=True)
        if key not in refusals:
            refusals[key] = _refusal(key)
        refusal = refusals[key]
        if refusal is None:
            continue
        op = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        missing = "NOT_IMPLEMENTED" in refusal or "is not a registered function/op" in refusal
        found.append(
            Finding(
                "EK1001" if missing else "EK1002",
                "error",
                target,
                node.name,
                op,
                f"no CPU kernel for {_types(probe)}" if missing else _plain(refusal),
            )
        )
    return found or [Finding("EK1002", "error", target, "", "", _plain(message))]


def _refusal(model: bytes) -> str | None:
    try:
        open_session(model, threads=1, optimize=False)
    except EngineError as problem:
        return str(problem)
    return None


def _probes(model: onnx.ModelProto) -> list[tuple[onnx.NodeProto, onnx.ModelProto]]:
    """Each node and a model of it alone, with values renamed so that equal nodes give equal models."""
    import onnx
    from onnx import helper

    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    types = {value.name: value.type for value in [*graph.input, *graph.value_info, *graph.output]}
    probes = []
    for node in graph.node:
        if any(attribute.HasField("g") for attribute in node.attribute):
            continue  # its body reads values of the graph around it, so it can't be probed alone
        if any(name and name not in types and name not in constants for name in node.input):
            continue  # of an unknown type: nothing could be said of it
        alone = onnx.NodeProto()
        alone.CopyFrom(node)
        alone.name = ""
        inputs, initializers = [], []
        for i, name in enumerate(node.input):
            if not name:
                continue
            alone.input[i] = f"in{i}"
            constant = constants.get(name)
            if constant is not None and _elements(constant) <= INLINED_ELEMENTS:
                copy = onnx.TensorProto()
                copy.CopyFrom(constant)
                copy.name = f"in{i}"
                initializers.append(copy)
            elif constant is not None:
                inputs.append(
                    helper.make_tensor_value_info(f"in{i}", constant.data_type, list(constant.dims))
                )
            else:
                inputs.append(helper.make_value_info(f"in{i}", types[name]))
        outputs = []
        for i, name in enumerate(node.output):
            if name:
                alone.output[i] = f"out{i}"
                known = types.get(name) or onnx.TypeProto()
                outputs.append(helper.make_value_info(f"out{i}", known))
        body = helper.make_graph([alone], "probe", inputs, outputs, initializers)
        probe = helper.make_model(body, opset_imports=model.opset_import, functions=model.functions)
        probe.ir_version = model.ir_version
        probes.append((node, probe))
    return probes


def _elements(tensor: onnx.TensorProto) -> int:
    count = 1
    for dimension in tensor.dims:
        count *= dimension
    return count


def _types(probe: onnx.ModelProto) -> str:
    from onnx import TensorProto

    kinds = {value.name: value.type.tensor_type.elem_type for value in probe.graph.input}
    kinds.update({tensor.name: tensor.data_type for tensor in probe.graph.initializer})
    names = [TensorProto.DataType.Name(kinds[n]).lower() for n in probe.graph.node[0].input if n in kinds]
    return ", ".join(names) or "no inputs"


def _plain(message: str) -> str:
    """ONNX Runtime's message on one line, without ``[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : ``."""
    line = " ".join(message.split())
    return line.rpartition("[ONNXRuntimeError] : ")[2].split(" : ", 2)[-1]
