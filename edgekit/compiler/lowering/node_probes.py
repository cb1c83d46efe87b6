"""A model for each node of a model, to ask an engine that names only the first node it refuses, or none."""

from __future__ import annotations

import onnx

INLINED_ELEMENTS = 1024
"""Constants up to this size go into the probe (axes, shapes, scales: kernels read them at load); larger ones
are weights and become inputs."""


def probes(
    model: onnx.ModelProto, inlined_elements: int = INLINED_ELEMENTS
) -> list[tuple[onnx.NodeProto, onnx.ModelProto]]:
    """Yield each node and a model of it alone, with values renamed so that equal nodes give equal models.

    Nodes with subgraphs, and nodes that read values of unknown types, are left out.
    Constants with more than ``inlined_elements`` elements become inputs.
    """
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
        probe_node = onnx.NodeProto()
        probe_node.CopyFrom(node)
        probe_node.name = ""
        del probe_node.metadata_props[:]  # names of the source model
        inputs, initializers = [], []
        for i, name in enumerate(node.input):
            if not name:
                continue
            probe_node.input[i] = f"in{i}"
            constant = constants.get(name)
            if constant is not None and _elements(constant) <= inlined_elements:
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
                probe_node.output[i] = f"out{i}"
                value_type = types.get(name) or onnx.TypeProto()
                outputs.append(helper.make_value_info(f"out{i}", value_type))
        body = helper.make_graph([probe_node], "probe", inputs, outputs, initializers)
        probe = helper.make_model(body, opset_imports=model.opset_import, functions=model.functions)
        probe.ir_version = model.ir_version
        probes.append((node, probe))
    return probes


def _elements(tensor: onnx.TensorProto) -> int:
    count = 1
    for dimension in tensor.dims:
        count *= dimension
    return count
