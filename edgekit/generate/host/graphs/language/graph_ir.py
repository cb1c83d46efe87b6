"""From a written graph to a model that passes and targets take."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from edgekit.generate.host.graphs.language.graph_writer import GraphWriter


def as_ir(graph: GraphWriter) -> ir.Model:
    """Convert graph and shapes. Large constants stay the writer's arrays: copies would take gigabytes."""
    proto = graph.model(external="constants")
    model = ir.from_proto(onnx.shape_inference.infer_shapes(proto, strict_mode=True, data_prop=True))
    for name, value in model.graph.initializers.items():
        value.const_value = ir.tensor(graph.constants[name], name=name)
    return model
