"""Shapes of operators that ONNX does not define and ONNX Runtime does: com.microsoft, and what its optimizer
writes into ONNX's own domain (SimplifiedLayerNormalization, LayerNormalization before opset 17).

ONNX Runtime infers them itself when it loads a model of the one node; nothing is run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir

from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.node_evaluation import attribute_protos, session_options
from edgekit.compiler.model.plugin_functions import infer_plugin
from edgekit.compiler.model.rewriting import array_of
from edgekit.compiler.model.size_checks import size_complaint
from edgekit.system.onnx_runtime import onnxruntime
from edgekit.tensor_spec import Array

CONTRIBUTED = "com.microsoft"
SMALL_ELEMENTS = 1024
"""Larger constants decide no shape."""
OLDER_OPSETS = (21, 18)
"""Tried too, because ONNX Runtime lacks kernels of newer versions of ops that did not change: 22 is one."""
_TYPES = {
    f"tensor({name})": dtype
    for name, dtype in {
        "float": ir.DataType.FLOAT, "float16": ir.DataType.FLOAT16, "double": ir.DataType.DOUBLE,
        "bool": ir.DataType.BOOL, "int8": ir.DataType.INT8, "uint8": ir.DataType.UINT8,
        "int16": ir.DataType.INT16, "uint16": ir.DataType.UINT16, "int32": ir.DataType.INT32,
        "uint32": ir.DataType.UINT32, "int64": ir.DataType.INT64, "uint64": ir.DataType.UINT64,
    }.items()
}  # fmt: skip


def infer_contributed(node: ir.Node, opsets: Mapping[str, int], arrays: Sequence[Array | None]) -> None:
    """Set type and shape of the node's outputs, in place, as far as ONNX Runtime infers them, or the plugin
    of TensorRT is known.

    Args:
        arrays: Its inputs that are constant; None for others.
    """
    infer_plugin(node)
    graphs = any(attribute.type == ir.AttributeType.GRAPH for attribute in node.attributes.values())
    is_own = not node.domain or node.domain.startswith(CONTRIBUTED)  # com.microsoft.nchwc too
    if not is_own or graphs or not _is_known(node):
        return
    used = _used(node)
    session = _session(node, opsets, arrays)
    if session is None:
        return
    for inferred in session.get_outputs():
        value, dims = used[inferred.name], inferred.shape
        if inferred.type in _TYPES:
            value.type = ir.TensorType(_TYPES[inferred.type])
        # ONNX Runtime returns [] for an unknown rank as well.
        if dims and all(isinstance(size, int) for size in dims):
            value.shape = ir.Shape(dims)
    if size_complaint(node):
        for value in node.outputs:
            value.shape = None


def is_loaded(node: ir.Node, opsets: Mapping[str, int]) -> bool | None:
    """Return whether the installed ONNX Runtime has a kernel for a node; None if it can't be asked, because
    an input has no static shape or the node has subgraphs."""
    graphs = any(attribute.type == ir.AttributeType.GRAPH for attribute in node.attributes.values())
    if graphs or not _is_known(node):
        return None
    arrays = [array_of(value) for value in node.inputs]
    attempts = ({**opsets, "": version} for version in (opsets.get("", 0), *OLDER_OPSETS))
    return any(_session(node, attempt, arrays) is not None for attempt in attempts)


def _is_known(node: ir.Node) -> bool:
    return all(value is None or (value.dtype and static_dims(value) is not None) for value in node.inputs)


def _used(node: ir.Node) -> dict[str, ir.Value]:
    return {f"o{k}": value for k, value in enumerate(node.outputs) if value.uses() or value.is_graph_output()}


def _session(node: ir.Node, opsets: Mapping[str, int], arrays: Sequence[Array | None]) -> Any:
    """Return a session of the one node, or None if ONNX Runtime has no kernel."""
    try:
        return onnxruntime().InferenceSession(
            _model(node, opsets, arrays).SerializeToString(),
            session_options(1, optimize=False),
            providers=["CPUExecutionProvider"],
        )
    except Exception:  # ONNX Runtime's exceptions share no root
        return None


def _model(node: ir.Node, opsets: Mapping[str, int], arrays: Sequence[Array | None]) -> onnx.ModelProto:
    used = _used(node)
    graph = onnx.GraphProto(name="one")
    names = ["" if value is None else f"i{k}" for k, value in enumerate(node.inputs)]
    for name, value, array in zip(names, node.inputs, arrays, strict=True):
        if value is None:
            continue
        if array is not None and array.size <= SMALL_ELEMENTS:
            graph.initializer.append(onnx.numpy_helper.from_array(array, name))
            continue
        assert value.type is not None
        assert value.shape is not None
        proto = ir.serde.serialize_type(value.type)
        ir.serde.serialize_shape_into(proto, value.shape)
        graph.input.append(onnx.ValueInfoProto(name=name, type=proto))
    outputs = [f"o{k}" if f"o{k}" in used else "" for k in range(len(node.outputs))]
    one = onnx.NodeProto(op_type=node.op_type, domain=node.domain, input=names, output=outputs)
    one.attribute.extend(attribute_protos(node))
    graph.node.append(one)
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in used)
    model = onnx.ModelProto(ir_version=10, graph=graph)
    for domain, version in opsets.items():
        model.opset_import.add(domain=domain, version=version)
    return model
