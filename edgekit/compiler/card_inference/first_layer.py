"""Pixel range that a network was trained on, derived from its first layers.

The graph gives two clues: arithmetic before the first convolution (``Sub`` and ``Div`` by constants, a
batch normalization), and the size of that convolution's weights. A trained network's first activations are
of the order of 1 on pictures like its training data, due to batch normalization and the usual
initializations. On pixels of 0 to 255 where it expects 0 to 1, they are some 255 times larger.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from edgekit.compiler.card_inference.facts import GraphFacts, constant_of
from edgekit.compiler.model.reference import Reference
from edgekit.errors import EdgeKitError
from edgekit.tensor_spec import Array

MOVES = ("Identity", "Transpose", "Cast", "Reshape", "Pad", "Resize", "Squeeze", "Unsqueeze", "Clip")
ARITHMETIC = ("Sub", "Add", "Mul", "Div", "BatchNormalization")
LAYERS = ("Conv", "Gemm", "MatMul")
LEAVES = 96
"""Width and height of the picture before it is repeated."""
RAW_BELOW = 6.0
"""Spread of the first layer on pixels of 0 to 255 below which it was trained on them. Of trained networks,
five that take them have 0.4 to 3.2; thirty that take 0 to 1, -1 to 1 or ImageNet's deviations 8.7 to 1384."""
IN_DOUBT = (3.5, 12.0)
"""Spreads that no more than one of those networks came near."""
ALIVE = 0.01
"""Part of the largest channel's deviation below which a channel is dead and says nothing."""


class InGraph(NamedTuple):
    """Arithmetic that the graph begins with: input x scale + offset, by channel or one for all."""

    scale: Array
    offset: Array
    ops: tuple[str, ...]

    @property
    def divides_pixels(self) -> bool:
        """Return whether the layer scales 0 to 255 to a few units, so that pixels need no normalization."""
        return bool(np.max(np.abs(self.scale)) * 255 < 16)


def in_graph(facts: GraphFacts, name: str) -> InGraph | None:
    """Return the arithmetic by constants between an input and the first layer; None where there is none."""
    value = next(v for v in facts.model.graph.inputs if v.name == name)
    scale, offset = np.ones(1), np.zeros(1)
    ops: list[str] = []
    while True:
        uses = [node for node, _ in value.uses()]
        if len(uses) != 1 or not uses[0].outputs:
            break
        node = uses[0]
        if node.op_type in ARITHMETIC:
            changed = _arithmetic(node, value, scale, offset)
            if changed is None:
                break
            scale, offset = changed
            ops.append(node.op_type)
        elif node.op_type not in MOVES:
            break
        value = node.outputs[0]
    return InGraph(scale, offset, tuple(ops)) if ops else None


def _arithmetic(node: ir.Node, value: ir.Value, scale: Array, offset: Array) -> tuple[Array, Array] | None:
    if node.op_type == "BatchNormalization":
        gamma, beta, mean, variance = (constant_of(v) for v in node.inputs[1:5])
        if gamma is None or beta is None or mean is None or variance is None:
            return None
        factor = gamma / np.sqrt(variance + node.attributes.get_float("epsilon", 1e-5))
        return scale * factor, (offset - mean) * factor + beta
    first = node.inputs[0] is value
    other = constant_of(node.inputs[1 if first else 0])
    if other is None or other.size not in (1, 3):
        return None
    number = other.reshape(-1).astype(np.float64)
    if node.op_type == "Mul":
        return scale * number, offset * number
    if node.op_type == "Div":
        return (scale / number, offset / number) if first else None
    if node.op_type == "Add":
        return scale, offset + number
    return (scale, offset - number) if first else (-scale, number - offset)


def response(facts: GraphFacts, name: str) -> float | None:
    """Compute the spread of the first layer's outputs on a picture with pixels 0 to 255.

    The spread is the median over live channels of the standard deviation over positions. Return None if
    there is no first layer, or it does not run.
    """
    layer = first_layer(facts.model, name)
    if layer is None:
        return None
    feeds = {spec.name: spec.zeros() for spec in facts.inputs}
    spec = next(spec for spec in facts.inputs if spec.name == name)
    channels_last = spec.shape[-1] in (1, 3)
    picture = dead_leaves(*(spec.shape[1:3] if channels_last else spec.shape[2:4]))
    channels = spec.shape[-1] if channels_last else spec.shape[1]
    picture = picture[..., :channels]
    feeds[name] = np.ascontiguousarray(
        (picture if channels_last else picture.transpose(2, 0, 1))[None].astype(spec.dtype)
    )
    try:
        outputs = Reference(cut(facts.model, layer)).run(feeds)[layer.name or ""]
    except EdgeKitError:
        return None
    if outputs.ndim != 4 or not np.isfinite(outputs).all():
        return None
    deviations = outputs.std(axis=(0, 2, 3))
    return float(np.median(deviations[deviations >= ALIVE * deviations.max()]))


def dead_leaves(height: int, width: int) -> Array:
    """Return a picture with statistics of photographs: overlapping discs of all sizes, uint8 [h, w, 3].

    Lee, Mumford and Huang, Occlusion models for natural images, IJCV 2001. It is the same at every call.
    """
    random = np.random.default_rng(7)
    y, x = np.mgrid[0:LEAVES, 0:LEAVES]
    tile = np.full((LEAVES, LEAVES, 3), 127, np.uint8)
    for _ in range(160):
        radius = LEAVES * 0.03 / random.uniform(0.08, 1.0) ** 0.7
        mask = (y - random.uniform(0, LEAVES)) ** 2 + (x - random.uniform(0, LEAVES)) ** 2 < radius**2
        grey = random.uniform(0, 255)
        tile[mask] = np.clip(grey + random.normal(0, 25, 3), 0, 255)
    return np.tile(tile, (-(-height // LEAVES), -(-width // LEAVES), 1))[:height, :width]


def cut(model: ir.Model, value: ir.Value) -> ir.Model:
    """Return the model up to one of its values, which is its output."""
    from onnx_ir.passes.common import RemoveUnusedNodesPass

    short = model.clone()
    output = next(v for node in short.graph for v in node.outputs if v.name == value.name)
    short.graph.outputs[:] = [output]
    RemoveUnusedNodesPass()(short)
    return short


def first_layer(model: ir.Model, name: str) -> ir.Value | None:
    """Return the output of the first convolution after an input, or of the batch normalization that follows
    it; None if there is no such layer."""
    waiting = [v for v in model.graph.inputs if v.name == name]
    for _ in range(200):
        if not waiting:
            return None
        value = waiting.pop(0)
        for node, _ in value.uses():
            if node.op_type in LAYERS:
                output = node.outputs[0]
                after = [n for n, _ in output.uses()]
                if len(after) == 1 and after[0].op_type == "BatchNormalization":
                    output = after[0].outputs[0]
                return output
            waiting += node.outputs
    return None
