"""Quantization rules of Rockchip's NPUs, by explicit quantization.

int8 with a zero point, one scale for each activation, one for each output channel of weights.

MEASURED: networks of one operator with Q/DQ pairs, built by rknn-toolkit2 2.5.0 for rk3588 and run on its
simulator, compared step by step with ONNX Runtime on the same file. ``quantized_forms`` defines the form of
the pairs.
"""

from __future__ import annotations

from edgekit.target.profile import Profile
from edgekit.target.quant_rules import ChannelNoise, Fusion, OpRule, Rules, gemm_rules

MEASURED = "measured on the simulator of rknn-toolkit2 2.5.0"

OPS = (
    OpRule("Conv", "own", f"{MEASURED}: 0.9985 to 0.9998 of the integers equal", (0,), 1, 0, bias=2),
    *gemm_rules("own", f"{MEASURED}; computed as a Conv"),
    OpRule("Add", "own", f"{MEASURED}: 0.9996 equal, with three different scales"),
    OpRule("Mul", "own", f"{MEASURED}: SiLU, all equal; its Sigmoid is part of the same kernel", (0,)),
    OpRule("GlobalAveragePool", "own", f"{MEASURED}: all equal, as quantized_forms writes it"),
    OpRule("Concat", "own", f"{MEASURED}: 0.9992 equal, with one scale for all or with several"),
    *OpRule.moves(
        "MaxPool Reshape Flatten Transpose Squeeze Unsqueeze",
        f"{MEASURED}: all equal, in the scale of the input",
    ),
    OpRule.nearest(f"{MEASURED}: all equal"),
)
"""No row for ConvTranspose, MatMul and AveragePool: an average is rounded to the scale of its input."""

FUSIONS = (
    Fusion(
        (("Conv", "Gemm", "Add"), ("Relu", "Clip")),
        f"{MEASURED}: ConvClip and ConvRelu in its list of layers",
    ),
)


def rules(profile: Profile) -> Rules:
    """Return rules: int8 for every chip of the family, with one compiler and one kind of pairs."""
    # An output without a pair behind a Conv with pairs before it is computed in float16 (MEASURED). load_onnx
    # refuses newer opsets: "Unsupport onnx opset 20, need <= 19!"
    return Rules(
        target=profile.name,
        activations="int8",
        symmetric=False,
        ops=OPS,
        fusions=FUSIONS,
        bias="float",
        placements=("all", "no depthwise", "no riders"),
        channel_noise=ChannelNoise(
            0.05,
            "float",
            "one scale for an activation; YOLOX-nano's stem has 0.28 of noise in such a scale, and all"
            " else 0.016",
        ),
    )
