"""Pad the integers that a Conv reads to a multiple of four channels, if it has fewer than eight.

    Q -> DQ -> Conv (3 channels)      =>      Q -> Pad -> DQ -> Conv (4 channels)

ONNX Runtime's QLinearConv copies the channels at each position of its window. It copies 4 of them in less
time than 1 to 3, and 8 than 5 to 7. The added integers are the zero point and their weights 0, so the sums
stay the same. Networks for images begin with such a Conv.
"""

from __future__ import annotations

from math import prod

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.rewriting import (
    add_constant,
    array_of,
    int_of,
    producer_of,
    put_before,
    remove_unread,
    rewritten_copy,
)

MULTIPLE, MOST_CHANNELS = 4, 7
"""Most channels to pad."""
MOST_ADDED = 75
"""Most added channels times positions of the window; beyond it, their multiplications cost more than the
copies save (docs/measured/quantization.md)."""


def with_padded_channels(model: ir.Model) -> ir.Model:
    """Return a copy of the model with such Convs padded, or the model itself."""
    return rewritten_copy(model, _added_channels, _pad)


def _added_channels(node: ir.Node) -> int:
    """Return the number of channels to add to a Conv of 8-bit integers with constant weights; 0 for none."""
    if node.op_type != "Conv" or node.domain or int_of(node, "group", 1) != 1:
        return 0
    data, weights = (producer_of(value, "DequantizeLinear") for value in node.inputs[:2])
    if data is None or weights is None or len(data.inputs) < 3 or len(weights.inputs) < 3:
        return 0
    stored, dims = data.inputs[0], static_dims(data.inputs[0])
    zero, weight_zeros = array_of(data.inputs[2]), array_of(weights.inputs[2])
    matrix = array_of(weights.inputs[0])
    if dims is None or zero is None or weight_zeros is None or matrix is None or array_of(stored) is not None:
        return 0
    if zero.ndim or zero.dtype.itemsize != 1 or weight_zeros.any() or dims[1] > MOST_CHANNELS:
        return 0
    added = -dims[1] % MULTIPLE
    return added if added * prod(matrix.shape[2:]) <= MOST_ADDED else 0


def _pad(model: ir.Model, node: ir.Node, added: int) -> None:
    """Add channels to the data and the weights of a Conv, each with a DequantizeLinear of its own."""
    for index, name in enumerate(("data/padded", "weights/padded")):
        pair = producer_of(node.inputs[index], "DequantizeLinear")
        assert pair is not None
        stored, scale, zero = pair.inputs[:3]
        assert stored is not None
        assert zero is not None
        dims, array = static_dims(stored) or (), array_of(stored)
        wider = (dims[0], dims[1] + added, *dims[2:])
        ends = np.zeros((len(dims), 2), np.int64)
        ends[1, 1] = added
        if array is not None:
            padded = add_constant(model, np.pad(array, ends), f"{node.name}/{name}")
        else:
            pads = add_constant(model, ends.T.ravel(), f"{node.name}/{name}/ends")
            padded = put_before(model, node, "Pad", [stored, pads, zero], wider, name, zero.dtype)
        inputs, axis = [padded, scale, zero], int_of(pair, "axis", 1)
        real = put_before(model, node, "DequantizeLinear", inputs, wider, f"{name}/real", axis=axis)
        node.replace_input_with(index, real)
        if not pair.outputs[0].uses():
            remove_unread(pair)
            if array is not None and not stored.uses():
                del model.graph.initializers[str(stored.name)]
