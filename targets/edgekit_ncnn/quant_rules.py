"""Quantization rules of ncnn: which layers compute on int8, by its sources.

Weights have a scale for each output channel, activations one, all symmetric. A convolution rounds its float
input itself, so pairs are needed at its input only.
"""

from __future__ import annotations

from edgekit.target.profile import Profile
from edgekit.target.quant_rules import Fusion, OpRule, Rules

GUIDE = "https://github.com/Tencent/ncnn/blob/master/docs/how-to-use-and-FAQ/quantized-int8-inference.md"
SOURCE = "https://github.com/Tencent/ncnn/blob/master/src/layer/"

OPS = (
    OpRule(
        "Conv", "asked", SOURCE + "convolution.cpp: int8_scale_term", (0,), weight=1, weight_axis=0, bias=2,
        weight_ranks=(4,),
    ),
    OpRule(
        "Gemm", "asked", SOURCE + "innerproduct.cpp: int8_scale_term", (0,), weight=1, weight_axis=0, bias=2,
        where=(("transA", (0,)), ("transB", (1,)), ("alpha", (1.0,)), ("beta", (1.0,))),
    ),
)  # fmt: skip
"""No row for Add, Mul, Concat or pools: they compute floats. Convs in one or three dimensions do too."""

FUSIONS = (
    Fusion(
        (("Conv",), ("Relu", "Clip", "LeakyRelu", "HardSwish")),
        SOURCE + "fused_activation.h: requantization comes after the activation",
    ),
)


def rules(profile: Profile) -> Rules:
    """Return the rules; they are the same for all processors."""
    return Rules(
        target=profile.name,
        activations="int8",
        symmetric=True,
        ops=OPS,
        fusions=FUSIONS,
        bias="float",
        placements=("all", "no depthwise"),
    )
