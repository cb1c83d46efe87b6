"""Outputs that saturate (softmax, sigmoid ...): which they are, and what difference does not matter."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from edgekit.tensor_spec import Array

if TYPE_CHECKING:
    import onnx_ir as ir

SATURATING_OPS = frozenset({"Softmax", "LogSoftmax", "Sigmoid", "Tanh", "HardSigmoid", "Clip"})
MOVING_OPS = frozenset(
    {"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Concat", "Slice", "Cast"}
)
SATURATED_MAX_ABS = 1e-5
"""Difference of a saturating output that no limit refuses. Presences, masks and scores are 0 to 1: one of
1e-4 that comes as 1.05e-4 is the same answer, and has 26 dB (MediaPipe pose landmarks on noise: 13 to 28)."""
NEGLIGIBLE_LIMIT_DB = -60.0
"""Least limit that goes with it; evidence holds no infinity."""


def saturating_outputs(model: ir.Model) -> set[str]:
    """Return the names of the outputs that come from a saturating op, through ops that only move data."""
    names = set()
    for output in model.graph.outputs:
        pending, visited = [output], set()
        while pending:
            value = pending.pop()
            node = value.producer()
            if node is None or id(value) in visited:
                continue
            visited.add(id(value))
            if node.op_type in SATURATING_OPS:
                names.add(str(output.name))
            elif node.op_type in MOVING_OPS:
                pending += [
                    v for v in node.inputs[: None if node.op_type == "Concat" else 1] if v is not None
                ]
    return names


def negligible_limit_db(expected: Sequence[Mapping[str, Array]], name: str) -> float:
    """Compute the SNR in dB of a difference of SATURATED_MAX_ABS everywhere, for the sample with the smallest
    values.

    A device is held to it, and has the first sample only.
    """
    sizes = [float(np.sqrt(np.mean(np.square(outputs[name].astype(np.float64))))) for outputs in expected]
    minimum = min(sizes)
    limit = 20 * math.log10(minimum / SATURATED_MAX_ABS) if minimum else -math.inf
    return round(max(limit, NEGLIGIBLE_LIMIT_DB), 1)
