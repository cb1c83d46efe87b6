"""Values stored about their own middle, for targets whose zero point must be 0.

    y = SiLU(x)  in -0.28 .. 20                    y - c  in -10.1 .. 10.1, stored with zero point 0
    Conv(y; W, b)                            =     Conv(y - c; W, b + c sum W)

Symmetric int8 wastes one of its 8 bits on what is not symmetric: behind ReLU and SiLU that is every value.
The same integers as with a zero point come out, of one addition more for each value, which engines fuse
behind its activation. Zero is not stored any more, so who reads the value must not pad it.

YOLOX-nano by TensorRT's rules, GPTQ, depthwise Convs in float: self-mAP .845 without, .947 with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from edgekit.model.rewriting import array_of, int_of, ints_of, text_of
from edgekit.quantize.numerics import dequantize
from edgekit.quantize.placement.kernels import Kernel
from edgekit.quantize.recipe import Affine, QuantizedWeights
from edgekit.target.quant_rules import Rules
from edgekit.tensors import Array

MOVES = frozenset(
    {
        *("Concat", "DepthToSpace", "Flatten", "MaxPool", "Reshape", "Slice", "SpaceToDepth", "Split"),
        *("Squeeze", "Transpose", "Unsqueeze"),
    }
)
"""What moves or compares values and brings none of its own; Resize does where it does not reach outside."""


def centrable(values: Sequence[ir.Value], kernels: Sequence[Kernel]) -> bool:
    """Whether values that share one scale may be stored less a constant.

    A product among the readers takes the constant up, and none of them pads; what moves the values moves
    nothing else.

    Args:
        values: What is stored by one scale.
        kernels: All of the plan.
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
        and all(takes_up(kernel.nodes[0]) for kernel in products)
        and all(moves(kernel.nodes[0]) for kernel in moving)
    )


def takes_up(node: ir.Node) -> bool:
    """Whether the bias of a product can take up a constant of its input."""
    if node.op_type == "Gemm":
        return True
    return (
        node.op_type == "Conv"
        and not any(ints_of(node, "pads"))
        and text_of(node, "auto_pad", "NOTSET") in ("NOTSET", "VALID")
    )


def moves(node: ir.Node) -> bool:
    """Whether a node gives a constant less where it is given a constant less."""
    if node.op_type == "Resize":
        return text_of(node, "coordinate_transformation_mode", "half_pixel") != "tf_crop_and_resize"
    return node.op_type in MOVES


def constant_of(by: Affine, rules: Rules) -> float:
    """What is taken from a value before it is stored; 0 where it is stored as it is."""
    if not rules.centred or by.scale.size != 1:
        return 0.0
    steps = _middle(by) - int(by.zero_point.reshape(()))
    return steps * float(by.scale.reshape(()))


def centred(by: Affine) -> Affine:
    """How the value less its constant is stored."""
    return Affine(by.scale, np.full(by.scale.shape, _middle(by), by.dtype), by.dtype, by.axis)


def _middle(by: Affine) -> int:
    return 128 if by.dtype == "uint8" else 0


def bias_for(node: ir.Node, weights: QuantizedWeights, constant: float) -> Array:
    """The bias of a product that reads its input less a constant: float32 [output channels].

    It is made of the weights as they are stored, so that their errors meet the value and not the constant.
    """
    real = dequantize(weights.stored, weights.affine).astype(np.float64)
    if node.op_type == "Conv":
        sums = real.reshape(len(real), -1).sum(axis=1)
    else:
        sums = real.sum(axis=1 if int_of(node, "transB", 0) else 0)
    given = 0.0 if weights.bias is None else np.asarray(weights.bias, np.float64).reshape(-1)
    bias: Array = given + constant * sums
    return bias.astype(np.float32)
