"""Rewrites HardSigmoid and HardSwish into ops that every int8 kernel has: multiply, add, saturate.

    HardSigmoid<a, b>(Conv(x; W, c))   =>   Clip(Conv(x; a W, a c + b), 0, 1)
    HardSwish(x)                       =>   x * Clip(DepthwiseConv1x1(x; 1/6, 1/2), 0, 1)

Quantized to the range [0, 1] the Clip costs nothing. XNNPACK has no int8 HARD_SWISH (LiteRT 2.3): with the
reference kernel PP-OCR's classifier took 3.4 times the time of fp32.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.rewriting import (
    Attribute,
    add_constant,
    array_of,
    float_of,
    input_of,
    insert_before,
    new_node,
    nodes_of,
    only_consumer,
    producer_of,
    replace_node,
)
from edgekit.compiler.quantize.observe.observers import Observation
from edgekit.compiler.quantize.placement.kernels import node_name
from edgekit.target.quant_rules import Rules
from edgekit.tensor_spec import Array


def linear_gates(
    model: ir.Model, observations: dict[str, Observation], rules: Rules, integer: Set[str]
) -> bool:
    """Rewrite every HardSwish of the ``integer`` nodes, and the HardSigmoids after their Convs, in place.

    Returns:
        Whether anything changed.
    """
    changed = False
    for graph, node in nodes_of(model, "HardSigmoid", "HardSwish"):
        if graph is not model.graph:
            continue
        if node.op_type == "HardSwish" and node_name(node) in integer:
            changed |= _gated(model, node, observations)
        elif node.op_type == "HardSigmoid" and str(node.inputs[0].name) in integer:  # type: ignore[union-attr]
            changed |= _into_conv(model, node, observations)
    return changed


def _into_conv(model: ir.Model, node: ir.Node, observations: dict[str, Observation]) -> bool:
    """Fold the scale and shift of a HardSigmoid into the Conv before it."""
    value = node.inputs[0]
    conv = producer_of(value, "Conv")
    weights = array_of(conv.inputs[1]) if conv is not None else None
    bias = input_of(conv, 2) if conv is not None else None
    if conv is None or value is None or weights is None or only_consumer(value) is not node:
        return False
    bias_array = np.zeros(len(weights), np.float32) if bias is None else array_of(bias)
    if bias_array is None:
        return False
    alpha, beta = np.float32(float_of(node, "alpha", 0.2)), np.float32(float_of(node, "beta", 0.5))
    conv.resize_inputs(3)
    conv.replace_input_with(1, add_constant(model, weights * alpha, f"{value.name}/weights"))
    conv.replace_input_with(2, add_constant(model, bias_array * alpha + beta, f"{value.name}/bias"))
    observation = observations.get(str(value.name))
    if observation is not None:
        observations[str(value.name)] = mapped(observation, lambda x: x * alpha + beta)
    replace_node(node, _clip(model, node, value))
    return True


def _gated(model: ir.Model, node: ir.Node, observations: dict[str, Observation]) -> bool:
    """Compute the gate of a HardSwish with a depthwise Conv and a Clip."""
    x = node.inputs[0]
    dims = static_dims(x)
    observation = observations.get(str(x.name)) if x is not None else None
    if x is None or dims is None or len(dims) != 4 or observation is None:
        return False
    channels, name = dims[1], node.outputs[0].name
    weights = add_constant(model, np.full((channels, 1, 1, 1), 1 / 6, np.float32), f"{name}/weights")
    bias = add_constant(model, np.full(channels, 0.5, np.float32), f"{name}/bias")
    attributes: dict[str, Attribute] = {"group": channels, "kernel_shape": [1, 1]}
    conv = new_node(node, "Conv", [x, weights, bias], attributes, f"{node.name}/line")
    line = insert_before(model, node, conv, f"{name}/line")
    gate = insert_before(model, node, _clip(model, node, line), f"{name}/gate")
    for value in (line, gate):
        value.type, value.shape = x.type, x.shape
    is_unshared = only_consumer(x) is None and {use.node for use in x.uses()} == {node, conv}
    if is_unshared and not x.is_graph_output():  # below -3 the gate is 0
        observation = mapped(observation, lambda a: np.maximum(a, np.float32(-3)))
        observations[str(x.name)] = observation
    observations[str(line.name)] = mapped(observation, lambda a: a / 6 + np.float32(0.5))
    observations[str(gate.name)] = mapped(observation, lambda a: np.clip(a / 6 + np.float32(0.5), 0, 1))
    replace_node(node, new_node(node, "Mul", [x, gate]))
    return True


def _clip(model: ir.Model, like: ir.Node, value: ir.Value) -> ir.Node:
    bounds = [
        add_constant(model, np.array(bound, np.float32), f"{like.outputs[0].name}/{end}")
        for bound, end in ((0, "low"), (1, "high"))
    ]
    return new_node(like, "Clip", [value, *bounds], name=f"{like.name}/clip")


def mapped(observation: Observation, function: Callable[[Array], Array]) -> Observation:
    """Return the observation of a monotonic function of the values."""
    ends = np.stack([function(observation.low), function(observation.high)])
    return replace(observation, low=ends.min(0), high=ends.max(0), sample=function(observation.sample))
