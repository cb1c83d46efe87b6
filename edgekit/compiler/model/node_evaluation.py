"""Evaluates one node on constants with ONNX Runtime, for constant folding and shape inference."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import onnx_ir as ir

from edgekit.system.onnx_runtime import onnxruntime
from edgekit.tensor_spec import Array

# The result depends on more than the inputs.
NON_DETERMINISTIC = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
)


def attribute_protos(node: ir.Node) -> list[onnx.AttributeProto]:
    """Return a node's attributes as protos. ``ir.to_proto`` tries every protocol: 30 times as long."""
    return [
        ir.serde.serialize_reference_attribute(attr) if attr.is_ref() else ir.serde.serialize_attribute(attr)
        for attr in node.attributes.values()
    ]


def evaluate_node(node: ir.Node, inputs: Sequence[Array | None], opset: int) -> list[Array] | None:
    """Compute a node of the default domain without subgraphs. Return None if the engine has no kernel.

    The caller must check the size of the outputs first: a few bytes can request terabytes. One call takes
    about 0.4 ms, mostly for loading the one-node model.

    Args:
        node: The node; only its op, attributes and number of outputs matter.
        inputs: Its inputs in order; None for omitted optional inputs.
    """
    names = ["" if array is None else f"i{k}" for k, array in enumerate(inputs)]
    feeds = {name: array for name, array in zip(names, inputs, strict=True) if array is not None}
    proto = onnx.NodeProto(
        op_type=node.op_type, input=names, output=[f"o{k}" for k in range(len(node.outputs))]
    )
    proto.attribute.extend(attribute_protos(node))
    graph = onnx.GraphProto(name="one", node=[proto])
    for name, array in feeds.items():
        dtype = int(ir.DataType.from_numpy(array.dtype))
        graph.input.append(onnx.helper.make_tensor_value_info(name, dtype, array.shape))
    for name in proto.output:
        graph.output.append(onnx.ValueInfoProto(name=name))
    model = onnx.ModelProto(ir_version=10, graph=graph)
    model.opset_import.add(version=opset)
    ort = onnxruntime()
    try:
        session = ort.InferenceSession(
            model.SerializeToString(), session_options(1, optimize=False), providers=["CPUExecutionProvider"]
        )
        results: list[Array] = session.run(None, feeds)
    except Exception:  # ONNX Runtime raises a dozen unrelated types; each means that it cannot be folded
        return None
    return results


def session_options(threads: int, optimize: bool) -> object:
    """Return options of an ONNX Runtime session without spinning and warnings. Q/DQ pairs are computed as
    written, with or without optimizations."""
    ort = onnxruntime()
    options = ort.SessionOptions()
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimize else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    return options
