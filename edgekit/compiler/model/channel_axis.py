"""The channel axis of what an operator reads and computes."""

from __future__ import annotations

from collections.abc import Set

import onnx_ir as ir

CHANNELS_LIMIT = 16_384
"""A tensor with more channels (a vocabulary, a flattened feature map) is observed per tensor only."""

_CHANNELS_SECOND = frozenset(
    {
        "AveragePool",
        "BatchNormalization",
        "Conv",
        "ConvTranspose",
        "DepthToSpace",
        "GlobalAveragePool",
        "GlobalMaxPool",
        "GroupNormalization",
        "InstanceNormalization",
        "LRN",
        "LpPool",
        "MaxPool",
        "Resize",
        "SpaceToDepth",
    }
)
_CHANNELS_LAST = frozenset({"Attention", "Gemm", "LayerNormalization", "MatMul", "RMSNormalization"})
_ACTIVATIONS = frozenset({"Clip", "HardSigmoid", "HardSwish", "LeakyRelu", "Relu", "Sigmoid", "Tanh"})


def axis_of_producer(value: ir.Value) -> int | None:
    """Return the channel axis of what the producer of a value computes; None if it is not known. An
    activation has that of its input."""
    node, rank = value.producer(), len(value.shape or ())
    while node is not None and node.op_type in _ACTIVATIONS and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return None if node is None else axis_by({node.op_type}, rank)


def axis_by(ops: Set[str], rank: int) -> int | None:
    """Return the channel axis that these operators have; None if they have none."""
    if rank >= 2 and ops & _CHANNELS_SECOND:
        return 1
    return rank - 1 if rank and ops & _CHANNELS_LAST else None
