"""Exact rewrites of the float graph that let more nodes run in int8, as selected by a target's rules.

A rewrite returns an equivalent graph with observations of all its values; nothing is run again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Set
from dataclasses import dataclass, replace

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
from edgekit.compiler.passes.remove_dead_code import remove_dead_code
from edgekit.compiler.quantize.numerics import affine, channel_noise, choose_range, fake_quantize
from edgekit.compiler.quantize.observe.observers import Observation
from edgekit.compiler.quantize.placement.kernels import find_kernels, is_depthwise, node_name, silu_of
from edgekit.compiler.quantize.recipe import Affine
from edgekit.target.quant_rules import Rules
from edgekit.tensor_spec import Array

# Rewrites HardSigmoid and HardSwish into ops that every int8 kernel has: multiply, add, saturate.
#
#     HardSigmoid<a, b>(Conv(x; W, c))   =>   Clip(Conv(x; a W, a c + b), 0, 1)
#     HardSwish(x)                       =>   x * Clip(DepthwiseConv1x1(x; 1/6, 1/2), 0, 1)
#
# Quantized to the range [0, 1] the Clip costs nothing. XNNPACK has no int8 HARD_SWISH (LiteRT 2.3): with the
# reference kernel PP-OCR's classifier took 3.4 times the time of fp32.


def linear_gates(
    model: ir.Model, observations: dict[str, Observation], rules: Rules, integer: Set[str]
) -> bool:
    """Rewrite every HardSwish of the ``integer`` nodes, and the HardSigmoids after their Convs, in place."""
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
    line = insert_before(model, node, conv, f"{name}/line", like=x)
    gate = insert_before(model, node, _clip(model, node, line), f"{name}/gate", like=x)
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


# Splits a SiLU before a depthwise Conv whose input channels differ too much to share one scale.
#
#     x = Conv(u; W, c)                      x = Conv(u; W, c)            for the gate: its range may be cut
#     y = x * Sigmoid(x)               =>    z = Conv(u; W / s, c / s)    for the product
#     Depthwise(y; V)                        y / s = z * Sigmoid(x)
#                                            Depthwise(y / s; V s)
#
# Exact, with one scale s for each channel, and all of it runs in int8: the channels of y / s have similar
# ranges. The Conv is computed twice, so this is limited by ``Rules.channel_noise``. In YOLOX-nano it applies
# once, in the stem; without it int8 on TFLite is unusable (mAP below .1 instead of .320 to .335).

Z_LIMITS = (0.4, 0.7, 1.0, 1.5)
"""Candidates: z is clipped to [-limit, 1]. Below, the gate of a negative x is nearly 0."""
Y_LIMITS = (0.07, 0.14, 0.28, 0.4)
"""Candidates: y / s is clipped to [-limit, 1]."""
SCALE_FACTORS = (0.4, 0.5, 0.6, 0.7, 0.85, 1.0, 1.3, 1.7, 2.2, 3.0, 4.0, 6.0, 8.0)
"""Candidates for the scale of a channel, relative to its largest |y|: smaller ones clip the highest values,
larger ones leave range for a negative x. With one minimum scale for all channels, a channel of YOLOX-nano
with a range of -0.5 to 0.8, next to others of 130, had 12 dB; with this no channel has less than 28. Self-mAP
of the int8 model on 128 photographs: round-to-nearest .72 and .80, GPTQ with l2 ranges .78 and .85."""


def split_silu(
    model: ir.Model, observations: dict[str, Observation], rules: Rules, integer: Set[str]
) -> bool:
    """Split every such SiLU between ``integer`` nodes, in place; True if anything changed."""
    limit = rules.channel_noise
    changed = False
    for conv, product, depthwise in list(_candidates(model)):
        names = [node_name(node) for node in (conv, product, depthwise)]
        x, y = observations.get(names[0]), observations.get(names[1])
        if limit is None or x is None or y is None or not integer >= set(names):
            continue
        shared = choose_range(y, "l4", rules.activations, rules.symmetric)
        if channel_noise(y, shared) <= limit.above:
            continue
        _split(model, (conv, product, depthwise), _best(x, y, rules), observations)
        changed = True
    return changed


def _candidates(model: ir.Model) -> Iterator[tuple[ir.Node, ir.Node, ir.Node]]:
    """Yield each Conv, the Mul of its SiLU, and the depthwise Conv that is its only consumer."""
    for conv in list(model.graph):
        silu = silu_of(conv.outputs[0]) if conv.op_type == "Conv" and not conv.domain else None
        reader = only_consumer(silu[1].outputs[0]) if silu else None
        if silu is None or reader is None or reader.op_type != "Conv" or not is_depthwise(reader):
            continue
        constants = [conv.inputs[1], input_of(conv, 2), reader.inputs[1]]
        if all(value is None or array_of(value) is not None for value in constants):
            yield conv, silu[1], reader


@dataclass(frozen=True, eq=False)
class _Scales:
    """The scales and clipping of both branches.

    Attributes:
        scale: s, float32 [channels].
        z_limit: z is clipped to [-z_limit, 1].
        y_limit: y / s is clipped to [-y_limit, 1].
    """

    scale: Array
    z_limit: float
    y_limit: float


def _best(x: Observation, y: Observation, rules: Rules) -> _Scales:
    """Return the per-channel scales and the limits with the least noise in y / s."""

    def affine_of(low: float, high: float) -> Affine:
        return affine(low, high, rules.activations, rules.symmetric)

    # The observed minimum and maximum count as one value each.
    values = np.concatenate([x.sample, x.low[None], x.high[None]])
    weight = np.ones((len(values), 1), np.float32)
    weight[len(x.sample) :] = len(x.sample) / max(x.count, len(x.sample))
    exact = values * _sigmoid(values)
    gates = fake_quantize(
        _sigmoid(fake_quantize(np.clip(values, -8, 8), affine_of(-8, 8))), affine_of(0, 255 / 256)
    )
    widest = np.maximum(y.high, -y.low)
    widest = np.maximum(widest, 1e-6 * widest.max())
    # A nearly constant channel is absorbed by the bias of the next layer.
    signal = np.maximum(y.sample.var(0), 1e-6 * np.square(y.sample).mean(0) + 1e-30)
    candidates = []
    for z_limit in Z_LIMITS:
        products = [
            fake_quantize(values / (widest * part), affine_of(-z_limit, 1)) * gates for part in SCALE_FACTORS
        ]
        for y_limit in Y_LIMITS:
            stored = affine_of(-y_limit, 1)
            errors = [
                fake_quantize(product, stored) * (widest * part) - exact
                for product, part in zip(products, SCALE_FACTORS, strict=True)
            ]
            noise = np.array([(weight * error**2).sum(0) for error in errors]) / len(x.sample)
            scale = widest * np.array(SCALE_FACTORS, np.float32)[noise.argmin(0)]
            ratio = float(np.minimum(noise.min(0) / signal, 1).mean())
            candidates.append((ratio, _Scales(scale.astype(np.float32), z_limit, y_limit)))
    return min(candidates, key=lambda candidate: candidate[0])[1]


def _split(
    model: ir.Model,
    nodes: tuple[ir.Node, ir.Node, ir.Node],
    scales: _Scales,
    observations: dict[str, Observation],
) -> None:
    conv, product, depthwise = nodes
    x, y, scale = conv.outputs[0], product.outputs[0], scales.scale
    inputs = [conv.inputs[0]]
    for index, name in ((1, "weights"), (2, "bias")):
        array = array_of(input_of(conv, index))
        if array is not None:
            rows = scale.reshape(-1, *[1] * (array.ndim - 1))
            inputs.append(add_constant(model, (array / rows).astype(np.float32), f"{x.name}/scaled/{name}"))
    scaled_conv = ir.Node("", "Conv", inputs, conv.attributes.values(), name=f"{conv.name}/scaled")
    z = insert_before(model, product, scaled_conv, f"{x.name}/scaled", like=x)
    product.replace_input_with(list(product.inputs).index(x), z)
    kernel = array_of(depthwise.inputs[1])
    assert kernel is not None
    multiplier = (static_dims(depthwise.inputs[1]) or (1,))[0] // len(scale)
    rows = np.repeat(scale, multiplier).reshape(-1, *[1] * (kernel.ndim - 1))
    weights = add_constant(
        model, (kernel * rows).astype(np.float32), f"{depthwise.outputs[0].name}/absorbing"
    )
    depthwise.replace_input_with(1, weights)

    def stored(value: ir.Value, low: float) -> Observation:
        observation, bottom = observations[str(value.name)], np.float32(-low)
        return mapped(observation, lambda a: np.clip(a / scale, bottom, np.float32(1)))

    observations[str(z.name)] = stored(x, scales.z_limit)
    observations[str(y.name)] = stored(y, scales.y_limit)


def _sigmoid(x: Array) -> Array:
    result: Array = 1 / (1 + np.exp(-np.clip(x, -60, 60)))
    return result


Observed = Mapping[str, Observation]
Rewrite = Callable[[ir.Model, dict[str, Observation], Rules, Set[str]], bool]

REWRITES: Mapping[str, Rewrite] = {"linear gates": linear_gates, "split SiLU": split_silu}
"""Name in ``Rules.rewrites`` -> the rewrite of the named nodes, in place; True if anything changed."""


def rewritten(
    model: ir.Model, observations: Observed, rules: Rules, float_nodes: Collection[str] = frozenset()
) -> tuple[ir.Model, Observed]:
    """Return the graph that a plan applies to, with its observations. Only nodes that will run in int8 are
    rewritten.

    Args:
        float_nodes: Names of nodes to keep in float; they have the same names in the new graph.

    Returns:
        A rewritten copy with its observations, or the arguments if there is nothing to rewrite.
    """
    if not rules.rewrites:
        return model, observations
    copy, observed = model.clone(), dict(observations)
    kernels = find_kernels(copy, rules, float_nodes)
    integer = {node_name(node) for kernel in kernels for node in kernel.nodes}
    changed = [REWRITES[name](copy, observed, rules, integer) for name in rules.rewrites]
    if not any(changed):
        return model, observations
    remove_dead_code(copy)
    return copy, observed
