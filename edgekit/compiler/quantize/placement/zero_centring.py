"""Centres asymmetric values around zero, for targets that require zero point 0.

    y = SiLU(x)  in -0.28 .. 20                    y - c  in -10.1 .. 10.1, stored with zero point 0
    Conv(y; W, b)                            =     Conv(y - c; W, b + c sum W)

Symmetric int8 wastes one of its 8 bits on one-sided values, such as all outputs of ReLU and SiLU. Centring
gives the same integers as a zero point would, for one more addition per value, which engines fuse after the
activation. Zero is no longer represented, so consumers must not pad the value.

YOLOX-nano with TensorRT's rules, GPTQ, depthwise Convs in float: self-mAP .845 without it, .947 with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.rewriting import array_of, int_of, ints_of, text_of
from edgekit.compiler.quantize.numerics import dequantize
from edgekit.compiler.quantize.placement.kernels import Kernel
from edgekit.compiler.quantize.recipe import Affine, QuantizedWeights
from edgekit.target.quant_rules import Rules
from edgekit.tensor_spec import Array

DATA_MOVEMENT_OPS = frozenset(
    {
        *("Concat", "DepthToSpace", "Flatten", "MaxPool", "Reshape", "Slice", "SpaceToDepth", "Split"),
        *("Squeeze", "Transpose", "Unsqueeze"),
    }
)
"""Ops that move or compare values without adding new ones; Resize too, unless it reads outside of its
input."""


def can_center(values: Sequence[ir.Value], kernels: Sequence[Kernel]) -> bool:
    """Return whether values that share one scale may be centred.

    Every layer with weights that reads them must absorb the offset in its bias and must not pad; other int8
    consumers may only move data.
    """
    if any(array_of(value) is not None for value in values):
        return False
    members = set(values)
    reading = [kernel for kernel in kernels if not members.isdisjoint(kernel.inputs)]
    products = [kernel for kernel in reading if kernel.rule.weight is not None]
    moving = [
        k for k in kernels if k.rule.output == "inputs" and not members.isdisjoint((*k.inputs, *k.outputs))
    ]
    return (
        bool(products)
        and all(absorbs_offset(kernel.nodes[0]) for kernel in products)
        and all(moves_data(kernel.nodes[0]) for kernel in moving)
    )


def absorbs_offset(node: ir.Node) -> bool:
    if node.op_type == "Gemm":
        return True
    return (
        node.op_type == "Conv"
        and not any(ints_of(node, "pads"))
        and text_of(node, "auto_pad", "NOTSET") in ("NOTSET", "VALID")
    )


def moves_data(node: ir.Node) -> bool:
    """Return whether a constant offset of the input gives the same offset of the output."""
    if node.op_type == "Resize":
        return text_of(node, "coordinate_transformation_mode", "half_pixel") != "tf_crop_and_resize"
    return node.op_type in DATA_MOVEMENT_OPS


def offset_of(affine: Affine, rules: Rules) -> float:
    """Return the constant that is subtracted from a value before it is quantized; 0 if it is not centred."""
    if not rules.centred or affine.scale.size != 1:
        return 0.0
    steps = _middle(affine) - int(affine.zero_point.reshape(()))
    return steps * float(affine.scale.reshape(()))


def centred(affine: Affine) -> Affine:
    """Return the quantization of the centred value."""
    return Affine(
        affine.scale, np.full(affine.scale.shape, _middle(affine), affine.dtype), affine.dtype, affine.axis
    )


def _middle(affine: Affine) -> int:
    return 128 if affine.dtype == "uint8" else 0


def bias_for(node: ir.Node, weights: QuantizedWeights, constant: float) -> Array:
    """Compute the bias of a layer that reads a centred input: float32 [output channels].

    It is computed from the quantized weights, so that their errors do not multiply the constant.
    """
    real = dequantize(weights.stored, weights.affine).astype(np.float64)
    if node.op_type == "Conv":
        sums = real.reshape(len(real), -1).sum(axis=1)
    else:
        sums = real.sum(axis=1 if int_of(node, "transB", 0) else 0)
    base = 0.0 if weights.bias is None else np.asarray(weights.bias, np.float64).reshape(-1)
    bias: Array = base + constant * sums
    return bias.astype(np.float32)
