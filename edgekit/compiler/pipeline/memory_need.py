"""Memory and time that a build needs for its model's values, from their static shapes and the request.

    calibration   PASS_COPIES     x min(all values, PASS_BYTES)      one pass over a sample
    engines       ENGINE_COPIES   x live values x targets x variants loaded at one time
    rounding      ROUNDED_SAMPLES x live values                      16 samples on one cut through the network
    outputs       OUTPUT_COPIES   x min(outputs x samples, KEPT_BYTES)   the reference's, and a variant's
    comparison    COMPARED_COPIES x outputs                          one sample in float64
    weights       WEIGHT_COPIES   x weights that the passes made     e.g. shared ones that were written out

Live values are the largest sum of values that are made and still read. What a model's file needs is the limit
that a build begins with (edgekit/compiler/sandbox/limits.py); this comes on top.

The time is SECONDS_A_BILLION for each billion operations, for each sample and target, and once more for the
reference. Operations are multiplications, and OPERATIONS_A_VALUE for each value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import onnx_ir as ir

from edgekit.compiler.compress.channel_groups import multiplications
from edgekit.compiler.evaluate.kept_outputs import KEPT_BYTES
from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.quantize.observe.calibrate import PASS_BYTES

PASS_COPIES, ENGINE_COPIES, ROUNDED_SAMPLES, OUTPUT_COPIES, WEIGHT_COPIES = 3, 4, 16, 3, 16
COMPARED_COPIES = 10
TEXT_BITS = 512
"""Of a string."""
SECONDS_A_BILLION, OPERATIONS_A_VALUE = 2.0, 16
"""Measured: 0.12 s for each billion (YOLOX-nano at 640 x 640, int8, 50 photographs, three targets). A board
that is busy takes ten times as long."""


Claim = Callable[[int, float], None]
"""Function that takes the memory in bytes and the time in seconds that are needed beyond the limits."""


def unclaimed(extra_bytes: int, extra_seconds: float) -> None:
    """Ignore a need: a trusted build has no limits."""


@dataclass(frozen=True)
class ModelBytes:
    """Sizes of a model with static shapes, in bytes.

    Attributes:
        values: All that nodes make, together.
        live: The largest sum of values that are made and still read, with the inputs.
        outputs: Outputs for one sample.
        weights: All constants.
    """

    values: int
    live: int
    outputs: int
    weights: int


def memory_need(source: ModelBytes, canonical: ModelBytes, samples: int, targets: int) -> int:
    """Estimate the bytes that a build needs beyond what the model's file needs."""
    return (
        PASS_COPIES * min(canonical.values, PASS_BYTES + canonical.live)
        + (ENGINE_COPIES * targets + ROUNDED_SAMPLES) * canonical.live
        + OUTPUT_COPIES * min(canonical.outputs * samples, KEPT_BYTES)
        + COMPARED_COPIES * canonical.outputs
        + WEIGHT_COPIES * max(canonical.weights - source.weights, 0)
    )


def seconds_need(model: ir.Model, sizes: ModelBytes, samples: int, targets: int) -> float:
    """Return the time in seconds that a build needs beyond what the model's file needs."""
    operations = multiplications(model) + OPERATIONS_A_VALUE * sizes.values // 4
    return SECONDS_A_BILLION * operations / 1e9 * samples * (targets + 1)


def model_bytes(model: ir.Model) -> ModelBytes:
    """Compute the sizes of a model. A value without a static shape counts as empty."""
    graph = model.graph
    nodes = list(graph)
    last = {value: index for index, node in enumerate(nodes) for value in node.inputs if value is not None}
    last |= dict.fromkeys(graph.outputs, len(nodes))
    ending: dict[int, int] = {}
    live = peak = _bytes(graph.inputs)
    total = 0
    for index, node in enumerate(nodes):
        output_bytes = _bytes(node.outputs)
        total, live = total + output_bytes, live + output_bytes
        peak = max(peak, live)
        for value in node.outputs:
            end = last.get(value, index)
            ending[end] = ending.get(end, 0) + _bytes([value])
        live -= ending.pop(index, 0)
    weights = sum(v.const_value.nbytes for v in graph.initializers.values() if v.const_value is not None)
    return ModelBytes(total, peak, _bytes(graph.outputs), weights)


def _bytes(values: Iterable[ir.Value]) -> int:
    return sum(
        math.prod(dims) * (value.dtype.bitwidth if value.dtype is not ir.DataType.STRING else TEXT_BITS) // 8
        for value in values
        if value.dtype is not None and (dims := static_dims(value)) is not None
    )
