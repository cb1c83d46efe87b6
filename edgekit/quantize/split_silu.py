"""SiLU before a depthwise Conv whose input channels differ too much to share one scale.

    x = Conv(u; W, c)                      x = Conv(u; W, c)            for the gate: its range may be cut
    y = x * Sigmoid(x)               =>    z = Conv(u; W / s, c / s)    for the product
    Depthwise(y; V)                        y / s = z * Sigmoid(x)
                                           Depthwise(y / s; V s)

Exact, with one scale s for each channel, and all of it computes on integers: the channels of y / s are alike.
It costs the Conv once more, so it is done where ``Rules.channel_noise`` says: on YOLOX-nano in one place, its
stem, without which int8 on TFLite is useless (mAP below .1 for .318 to .325).
"""

from __future__ import annotations

from collections.abc import Iterator, Set

import numpy as np
import onnx_ir as ir

from edgekit.node_checks import static_dims
from edgekit.passes.rewriting import (
    add_constant,
    array_of,
    input_of,
    insert_before,
    only_user,
)
from edgekit.quantize.kernels import is_depthwise, node_name, silu_of
from edgekit.quantize.linear_gates import mapped
from edgekit.quantize.numerics import affine, channel_noise, choose_range, fake_quantize
from edgekit.quantize.observe import Observation
from edgekit.quantize.recipe import Affine
from edgekit.quantize.rules import Rules
from edgekit.target import Array

LEAST_RANGES = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0)
"""A channel with less range than this is scaled as if it had it: its negative end, -0.28, would stand out."""
LOW_ENDS = (-8.0, -6.0, -4.0, -3.0, -2.0)
"""Where z is cut, in units of x: below, the gate is nearly closed."""


def split_silu(
    model: ir.Model, observations: dict[str, Observation], rules: Rules, integer: Set[str]
) -> bool:
    """Split every such SiLU between ``integer`` nodes, in place; True if there was one."""
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
        scale, low = _best(x, y, rules)
        _split(model, (conv, product, depthwise), scale, low, observations)
        changed = True
    return changed


def _candidates(model: ir.Model) -> Iterator[tuple[ir.Node, ir.Node, ir.Node]]:
    """Conv, the Mul of its SiLU, and the depthwise Conv that alone reads it."""
    for conv in list(model.graph):
        silu = silu_of(conv.outputs[0]) if conv.op_type == "Conv" and not conv.domain else None
        reader = only_user(silu[1].outputs[0]) if silu else None
        if silu is None or reader is None or reader.op_type != "Conv" or not is_depthwise(reader):
            continue
        constants = [conv.inputs[1], input_of(conv, 2), reader.inputs[1]]
        if all(value is None or array_of(value) is not None for value in constants):
            yield conv, silu[1], reader


def _best(x: Observation, y: Observation, rules: Rules) -> tuple[Array, float]:
    """The scales of the channels and the low end of z with the least noise in y / s."""

    def of(low: float, high: float) -> Affine:
        return affine(low, high, rules.activations, rules.symmetric)

    gates = fake_quantize(_sigmoid(fake_quantize(np.clip(x.sample, -8, 8), of(-8, 8))), of(0, 255 / 256))
    tried = []
    for least in LEAST_RANGES:
        scale = np.maximum(y.high, np.float32(least))
        z, exact = x.sample / scale, y.sample / scale
        stored = of(float((y.low / scale).min()), 1.0)
        for low in LOW_ENDS:
            product = fake_quantize(z, of(low / float(scale.min()), 1.0)) * gates
            noise = np.square(fake_quantize(product, stored) - exact).mean(0)
            # A channel that is next to nothing beside the others is lost whatever is chosen.
            signal = exact.var(0)
            ratio = float((noise / np.maximum(signal, 1e-6 * signal.max())).mean())
            tried.append((ratio, least, low))
    _, least, low = min(tried)
    return np.maximum(y.high, np.float32(least)), low


def _split(
    model: ir.Model,
    nodes: tuple[ir.Node, ir.Node, ir.Node],
    scale: Array,
    low: float,
    observations: dict[str, Observation],
) -> None:
    conv, product, depthwise = nodes
    x, y = conv.outputs[0], product.outputs[0]
    inputs = [conv.inputs[0]]
    for place, name in ((1, "weights"), (2, "bias")):
        array = array_of(input_of(conv, place))
        if array is not None:
            rows = scale.reshape(-1, *[1] * (array.ndim - 1))
            inputs.append(add_constant(model, (array / rows).astype(np.float32), f"{x.name}/scaled/{name}"))
    again = ir.Node("", "Conv", inputs, conv.attributes.values(), name=f"{conv.name}/scaled")
    z = insert_before(model, product, again, f"{x.name}/scaled")
    z.type, z.shape = x.type, x.shape
    product.replace_input_with(list(product.inputs).index(x), z)
    own = array_of(depthwise.inputs[1])
    assert own is not None
    multiplier = (static_dims(depthwise.inputs[1]) or (1,))[0] // len(scale)
    rows = np.repeat(scale, multiplier).reshape(-1, *[1] * (own.ndim - 1))
    weights = add_constant(model, (own * rows).astype(np.float32), f"{depthwise.outputs[0].name}/absorbing")
    depthwise.replace_input_with(1, weights)
    cut = np.float32(low / float(scale.min()))
    observations[str(z.name)] = mapped(observations[str(x.name)], lambda a: np.maximum(a / scale, cut))
    observations[str(y.name)] = mapped(observations[str(y.name)], lambda a: a / scale)


def _sigmoid(x: Array) -> Array:
    result: Array = 1 / (1 + np.exp(-x))
    return result
