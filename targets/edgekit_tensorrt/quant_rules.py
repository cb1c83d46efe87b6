"""Quantization rules of TensorRT: int8 by explicit quantization.

int8 with zero point 0 everywhere: one scale for each activation, one for each output channel of weights,
float bias. Sources: QUANTIZED is NVIDIA's guide; MEASURED is what NVIDIA's compiler (tensorrt-rtx 1.7.1.116)
built from files with these pairs, read from the list of kernels it built.
"""

from __future__ import annotations

from edgekit.target.profile import Profile
from edgekit.target.quant_rules import ChannelNoise, Fusion, OpRule, Rules, gemm_rules
from edgekit_tensorrt.rules import QUANTIZED

MEASURED = "tried on tensorrt-rtx 1.7.1.116"

OPS = (
    OpRule(
        "Conv",
        "asked",
        f"{QUANTIZED}; {MEASURED}: 1-D to 3-D, grouped, depthwise, dilated",
        (0,),
        1,
        0,
        bias=2,
    ),
    *gemm_rules("asked", f"{QUANTIZED}; {MEASURED}"),
    OpRule.matmul("asked", f"{QUANTIZED}; {MEASURED}"),
    OpRule("Add", "asked", f"{QUANTIZED}: both inputs of a residual Add"),
    OpRule("Concat", "inputs", f"{QUANTIZED}: one scale for all inputs; pairs move through it"),
    *OpRule.moves(
        "DepthToSpace Flatten MaxPool Reshape Slice SpaceToDepth Split Squeeze Transpose Unsqueeze",
        f"{QUANTIZED}: pairs move through ops that only move data",
    ),
    OpRule.nearest(f"{QUANTIZED}: nearest neighbour only moves data"),
)
"""No row for ConvTranspose: MEASURED gives it no int8 kernel, by any axis of the weights, 2x2 or 4x4."""

ACTIVATIONS = (
    *("Relu", "Clip", "LeakyRelu", "Elu", "Sigmoid", "Silu", "Tanh", "HardSigmoid", "HardSwish", "Gelu"),
    *("Softplus", "Selu", "PRelu"),
)
FUSIONS = (
    Fusion((("Conv", "Gemm"), ACTIVATIONS), f"{QUANTIZED}: pointwise ops behind a Conv; {MEASURED}"),
    Fusion((("Add",), ("Relu", "Clip")), f"{QUANTIZED}: Conv + residual + Relu"),
    Fusion((("MatMul",), ("Bias",), ACTIVATIONS), f"{QUANTIZED}; {MEASURED}"),
    Fusion((("MatMul",), ("Bias",)), f"{QUANTIZED}; {MEASURED}"),
)


def rules(profile: Profile) -> Rules:
    """Return rules: int8 for every device; Orin and Thor have the same rules for int8 tensor cores."""
    # Forms that it refuses or computes wrongly (MEASURED; the last one QUANTIZED):
    # a zero point other than 0: refused
    # uint8: taken for int8, so that 128 to 255 become 127
    # an int32 bias behind a DequantizeLinear: refused
    # weight scales along another axis than the output channels: a float kernel
    # weights alone as int8: a float kernel
    # a pair between a Conv and what is fused behind it
    return Rules(
        target=profile.name,
        activations="int8",
        symmetric=True,
        ops=OPS,
        fusions=FUSIONS,
        bias="float",
        placements=("all", "all, centred", "no depthwise, centred", "no riders"),
        channel_noise=ChannelNoise(
            0.05,
            "float",
            f"{MEASURED}: one scale for each channel of an activation gives a float kernel. YOLOX-nano's stem"
            " has 0.28, every other tensor 0.016",
        ),
    )
