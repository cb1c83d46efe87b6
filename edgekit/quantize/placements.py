"""Which kernels compute on integers: the choices that are worth trying before any layer is looked at alone.

Whether an integer kernel wins depends on how much it multiplies for each pair around it, and on the engine: a
target names those of PLACEMENTS that may win there, the likeliest first (``Rules.placements``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import onnx_ir as ir

from edgekit.node_checks import static_dims
from edgekit.quantize.kernels import Kernel, find_kernels, is_depthwise, node_name
from edgekit.quantize.rules import Rules


@dataclass(frozen=True)
class Placement:
    """Of the kernels that a target could compute on integers, those that do.

    Attributes:
        columns: Kernels with weights that add up at least so many products for one output, K = Cin / groups *
            kh * kw of a Conv.
        depthwise: Whether depthwise Convs do, whatever their columns.
        riders: Whether what carries no pair by itself does: moves, elementwise ops, pools.
    """

    columns: int = 0
    depthwise: bool = True
    riders: bool = True

    def stays_float(self, kernel: Kernel) -> bool:
        if kernel.rule.weight is None:
            return not self.riders and not kernel.carries
        if is_depthwise(kernel.nodes[0]):
            return not self.depthwise
        return _columns(kernel) < self.columns


PLACEMENTS: Mapping[str, Placement] = {
    "all": Placement(),
    "no depthwise": Placement(depthwise=False),
    "32 columns": Placement(32),
    "64 columns": Placement(64),
    "128 columns": Placement(128, depthwise=False),
    "128 columns alone": Placement(128, depthwise=False, riders=False),
    "256 columns alone": Placement(256, depthwise=False, riders=False),
}


def floats_of(placement: str, model: ir.Model, rules: Rules) -> frozenset[str]:
    """Names of the nodes that stay float in a placement, for ``place``.

    Args:
        placement: A key of PLACEMENTS.
        model: The canonical float graph.
        rules: Of the target.
    """
    stays_float = PLACEMENTS[placement].stays_float
    kernels = find_kernels(model, rules)
    return frozenset(node_name(node) for k in kernels if stays_float(k) for node in k.nodes)


def _columns(kernel: Kernel) -> int:
    """Products that are added up for one output."""
    rule = kernel.rule
    assert rule.weight is not None
    dims = static_dims(kernel.nodes[0].inputs[rule.weight]) or ()
    if kernel.nodes[0].op_type == "ConvTranspose":
        return dims[0]  # of each place of its kernel
    axis = rule.weight_axis
    return prod(dims) // (dims[axis] if axis is not None else 1)
