"""Convolutions on integers: int8 weights with a scale for each output channel, int8 activations with one.

    x -> QuantizeLinear -> DequantizeLinear -> Conv(w: int8)  =>  Convolution<int8_scale_term>(x, w, scales)

The layer rounds its float input itself. ``with_requantization`` lets a convolution write the integers that
the next ones read:

    Convolution -> float -> Convolution  =>  Convolution -> int8 -> Convolution

Symmetric only, rounded half away from zero, -127 to 127: src/layer/quantize.cpp.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edgekit.tensor_spec import Array
from edgekit_ncnn.builder import Value
from edgekit_ncnn.network import Layer

INT8_TERM = 8
"""Number of the parameter int8_scale_term."""
REQUANTIZES = 100
"""Added to int8_scale_term if the layer writes int8."""
PER_CHANNEL = {"Convolution": 2, "ConvolutionDepthWise": 1, "InnerProduct": 2}
"""int8_scale_term of layers with weights that have a scale for each output channel."""


class IntegerForm(NamedTuple):
    """A layer's content as integers.

    Attributes:
        source: The layer's input, before it is rounded.
        term: int8_scale_term.
        weights: int8.
        scales: Scales of the weights and of the input, in integers for 1.0.
    """

    source: Value
    term: int
    weights: Array
    scales: list[Array]


def integer_form(x: Value, weights: Value, group: int, axes: int) -> IntegerForm | None:
    """Return the integers of a Conv in two dimensions or of a dense layer (``axes`` 0), or None
    if it has none.
    """
    if x.pair is None or x.shape[:1] != (1,) or x.pair.scale.size != 1 or axes not in (0, 2):
        return None
    if weights.pair is None or weights.pair.source.const is None:
        return None
    integers = weights.pair.source.const
    if group != 1 and not (group == x.shape[1] == integers.shape[0]):
        return None
    kind = "InnerProduct" if not axes else "Convolution" if group == 1 else "ConvolutionDepthWise"
    by_channel = np.broadcast_to(1 / weights.pair.scale.ravel(), (integers.shape[0],))
    return IntegerForm(
        x.pair.source, PER_CHANNEL[kind], integers.ravel(), [by_channel, 1 / x.pair.scale.ravel()]
    )


def with_requantization(layers: Sequence[Layer], output_blobs: Sequence[str]) -> None:
    """Let convolutions write int8 if only convolutions on integers of one scale read them, in place."""
    readers: dict[str, list[Layer]] = defaultdict(list)
    for layer in layers:
        for name in layer.inputs:
            readers[name].append(layer)
    for layer in layers:
        if not _reads_integers(layer):
            continue
        after = readers[layer.outputs[0]]
        if (
            not after
            or layer.outputs[0] in output_blobs
            or not all(_reads_integers(reader) for reader in after)
        ):
            continue
        scales = {_input_scale(reader).item() for reader in after}
        if len(scales) == 1:
            term = layer.params[INT8_TERM]
            assert isinstance(term, int)
            layer.params[INT8_TERM] = term + REQUANTIZES
            layer.weights.append(_input_scale(after[0]))


def _reads_integers(layer: Layer) -> bool:
    return layer.kind in ("Convolution", "ConvolutionDepthWise") and INT8_TERM in layer.params


def _input_scale(layer: Layer) -> Array:
    term = layer.params[INT8_TERM]
    assert isinstance(term, int)
    return layer.weights[-2 if term > REQUANTIZES else -1]
