"""Which kernels compute on integers: the choices that are worth trying before any layer is looked at alone.

Whether an integer kernel wins depends on how much it multiplies for each pair around it, and on the engine: a
target names those of PLACEMENTS that may win there, the likeliest first (``Rules.placements``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import onnx_ir as ir

from edgekit.model.node_checks import static_dims
from edgekit.quantize.placement.kernels import Kernel, find_kernels, is_depthwise, node_name
from edgekit.target.quant_rules import Rules


@dataclass(frozen=True)
class PlacementPreset:
    """Of the kernels that a target could compute on integers, those that do.

    Attributes:
        columns: Kernels with weights that add up at least so many products for one output, K = Cin / groups *
            kh * kw of a Conv.
        depthwise: Whether depthwise Convs do, whatever their columns.
        riders: Whether what carries no pair by itself does: moves, elementwise ops, pools.
        centred: Whether values are stored about their own middle where the target's zero point must be 0
            (``centre``).
    """

    columns: int = 0
    depthwise: bool = True
    riders: bool = True
    centred: bool = False

    def stays_float(self, kernel: Kernel) -> bool:
        if kernel.rule.weight is None:
            return not self.riders and not kernel.carries
        if is_depthwise(kernel.nodes[0]):
            return not self.depthwise
        return _columns(kernel) < self.columns


PLACEMENTS: Mapping[str, PlacementPreset] = {
    "all": PlacementPreset(),
    "no riders": PlacementPreset(riders=False),
    "no depthwise": PlacementPreset(depthwise=False, riders=False),
    "64 columns": PlacementPreset(64, depthwise=False, riders=False),
    "128 columns": PlacementPreset(128, depthwise=False, riders=False),
    "128 columns and riders": PlacementPreset(128, depthwise=False),
    "256 columns": PlacementPreset(256, depthwise=False, riders=False),
    "all, centred": PlacementPreset(centred=True),
    "no depthwise, centred": PlacementPreset(depthwise=False, centred=True),
}
"""From everything to little. Which ones a target names was measured on a CPU with AVX2 and without VNNI, in
CPU time by turns, fp32 over int8, round to nearest:

                        ort               openvino          tflite
                        a    r    1    k   a    n    d    6   a    1    2
    EfficientNet-Lite0  1.45 1.19 1.16 1.12 1.37 1.37 1.35 1.32 0.96 1.06 1.05
    COCO-SSD            1.44 1.20 1.20 1.21 1.46 1.46 1.49 1.37 0.94 1.08 1.08
    YOLOX-nano          0.89 1.05 1.02 1.04 1.18 1.20 1.24 1.23 0.91 1.01 1.02
    ResNet-8            1.25 1.23 1.10 1.08 1.55 1.60 1.61 1.62 0.81 0.87 0.97
    wake words          0.82 1.08 1.06 1.06 1.01 0.97 1.13 1.08 0.92 1.16 1.17
    PP-OCR cls          0.45 0.87 1.04    - 0.89 0.90 1.00 1.04 0.29 1.06    -

    a all, n no riders, d no depthwise, 6 64 columns, r 128 columns and riders, 1 128 columns, k and 2 256

Without VNNI an instruction adds 32 products of 8 bits where three are needed for what one FMA does with 8
floats (MLAS, oneDNN), or 16 with two (XNNPACK): at most 1.3 or 1.0 times the speed, and what moving fewer
bytes brings. Each Conv by itself on ONNX Runtime, all of the first three networks: below 32 columns 1.0 to
1.2 times as fast as fp32, to 63 1.3 to 1.6, to 127 1.4 to 1.7, to 255 1.6 to 1.9, from there 1.8 to 2.0;
depthwise 3x3 0.5 to 0.8, 5x5 1.0. What YOLOX-nano's gain so goes into the pairs around its 104 SiLU.
"""


def rules_of(placement: str, rules: Rules) -> Rules:
    """The target's rules as a placement wants them."""
    return replace(rules, centred=rules.symmetric and PLACEMENTS[placement].centred)


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
