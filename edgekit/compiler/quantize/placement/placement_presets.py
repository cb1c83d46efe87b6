"""Presets for which kernels run in int8, to search before single layers are kept in float.

Whether int8 is faster depends on a kernel's reduction size relative to the Q/DQ pairs around it, and on the
engine. A target lists the PLACEMENTS that may win there, the most likely first (``Rules.placements``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod

from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.quantize.placement.kernels import Kernel, is_depthwise, node_name
from edgekit.target.quant_rules import Dtype, Rules


@dataclass(frozen=True)
class PlacementPreset:
    """Selects the kernels that run in int8, of those that the target supports.

    Attributes:
        min_reduction_size: Least reduction size K of a kernel with weights; of a Conv K = Cin / groups * kh *
            kw.
        depthwise: Whether depthwise Convs run in int8, whatever their reduction size.
        agnostic_ops: Whether quantization-agnostic ops do: data movement, elementwise ops, pools.
        centred: Whether asymmetric values are centred if the target requires zero point 0
            (``zero_centring``).
        wide: Whether activations are stored in 16 bits, for engines that have kernels for both.
    """

    min_reduction_size: int = 0
    depthwise: bool = True
    agnostic_ops: bool = True
    centred: bool = False
    wide: bool = False

    def stays_float(self, kernel: Kernel) -> bool:
        if kernel.rule.weight is None:
            return not self.agnostic_ops and kernel.is_agnostic
        if is_depthwise(kernel.nodes[0]):
            return not self.depthwise
        return _reduction_size(kernel) < self.min_reduction_size


PLACEMENTS: Mapping[str, PlacementPreset] = {
    "all": PlacementPreset(),
    "no riders": PlacementPreset(agnostic_ops=False),
    "no depthwise": PlacementPreset(depthwise=False, agnostic_ops=False),
    "64 columns": PlacementPreset(64, depthwise=False, agnostic_ops=False),
    "128 columns": PlacementPreset(128, depthwise=False, agnostic_ops=False),
    "128 columns and riders": PlacementPreset(128, depthwise=False),
    "256 columns": PlacementPreset(256, depthwise=False, agnostic_ops=False),
    "all, centred": PlacementPreset(centred=True),
    "no depthwise, centred": PlacementPreset(depthwise=False, centred=True),
    "all, 16 bits": PlacementPreset(wide=True),
}
"""From all kernels to few. The names are written into manifests as they are; "columns" is the reduction size.
Measured on a CPU with AVX2 and without VNNI, interleaved, CPU time of fp32 over int8, round-to-nearest:

                        ort               openvino          tflite
                        a    r    1    k   a    n    d    6   a    1    2
    EfficientNet-Lite0  1.45 1.19 1.16 1.12 1.37 1.37 1.35 1.32 0.96 1.06 1.05
    COCO-SSD            1.44 1.20 1.20 1.21 1.46 1.46 1.49 1.37 0.94 1.08 1.08
    YOLOX-nano          0.89 1.05 1.02 1.04 1.18 1.20 1.24 1.23 0.91 1.01 1.02
    ResNet-8            1.25 1.23 1.10 1.08 1.55 1.60 1.61 1.62 0.81 0.87 0.97
    wake words          0.82 1.08 1.06 1.06 1.01 0.97 1.13 1.08 0.92 1.16 1.17
    PP-OCR cls          0.45 0.87 1.04    - 0.89 0.90 1.00 1.04 0.29 1.06    -

    a all, n no riders, d no depthwise, 6 64 columns, r 128 columns and riders, 1 128 columns, k and 2 256

Without VNNI, 32 8-bit products take three instructions, and one FMA takes 8 floats (MLAS, oneDNN); in XNNPACK
16 products take two: at most 1.3 or 1.0 times the speed, plus the gain from moving fewer bytes. Each Conv
alone on ONNX Runtime, in all of the first three networks: for K below 32 1.0 to 1.2 times as fast as fp32, to
63 1.3 to 1.6, to 127 1.4 to 1.7, to 255 1.6 to 1.9, from there 1.8 to 2.0; depthwise 3x3 0.5 to 0.8, 5x5 1.0.
YOLOX-nano loses this gain again in the pairs around its 104 SiLU.
"""


WIDE: Mapping[Dtype, Dtype] = {"int8": "int16", "uint8": "uint16"}


def rules_of(placement: str, rules: Rules) -> Rules:
    preset = PLACEMENTS[placement]
    activations = WIDE[rules.activations] if preset.wide else rules.activations
    return replace(rules, activations=activations, centred=rules.symmetric and preset.centred)


def floats_of(placement: str, kernels: Iterable[Kernel]) -> frozenset[str]:
    """Return the names of the nodes that stay float in a placement, for ``place``."""
    stays_float = PLACEMENTS[placement].stays_float
    return frozenset(node_name(node) for k in kernels if stays_float(k) for node in k.nodes)


def _reduction_size(kernel: Kernel) -> int:
    rule = kernel.rule
    assert rule.weight is not None
    dims = static_dims(kernel.nodes[0].inputs[rule.weight]) or ()
    if kernel.nodes[0].op_type == "ConvTranspose":
        return dims[0]  # for each element of its kernel
    axis = rule.weight_axis
    return prod(dims) // (dims[axis] if axis is not None else 1)
