"""Quantization rules of Core ML: int8 activations, one symmetric scale each; int8 weights, one per channel.

On the Neural Engine of A17 Pro, M4 and later that doubles the rate (measured by third parties: 33.9 against
18.0 TOPS on M5, 35.1 against 18.6 on M4). On older chips the pairs cost more than they save: there,
weight-only quantization is better.

A pair is placed before an integer consumer, after the activation. Apple's own tool (coremltools.optimize.
coreml.linear_quantize_activations) puts another pair between a convolution and a SiLU, without need:
with it YOLOX-nano has a self-mAP of .848, without it .879 (all of it int8, values centred, GPTQ).
"""

from __future__ import annotations

from edgekit.target.profile import Profile
from edgekit.target.quant_rules import ChannelNoise, Fusion, OpRule, Rules, WeightForm, gemm_rules

GUIDE = "https://apple.github.io/coremltools/docs-guides/source/opt-quantization-perf.html"
OVERVIEW = "https://apple.github.io/coremltools/docs-guides/source/opt-quantization-overview.html"
PER_CHANNEL = (
    "https://github.com/apple/coremltools/issues/2510: ANE only support per-cout/per-tensor quantization"
)

OPS = (
    OpRule("Conv", "asked", GUIDE + ": int8-int8 compute", (0,), 1, 0, bias=2, ranks=(3, 4)),
    OpRule.conv_transpose("asked", GUIDE + ": int8-int8 compute", ranks=(4,)),
    *gemm_rules("asked", GUIDE + ": int8-int8 compute; linear"),
    OpRule.matmul("asked", GUIDE + ": int8-int8 compute; linear"),
    OpRule("Add", "asked", OVERVIEW + ": activations are quantized between layers, residual sums among them"),
    *OpRule.moves(
        "Flatten MaxPool Reshape Slice Squeeze Transpose Unsqueeze",
        OVERVIEW + ": ops that only move or compare values pass int8 on",
    ),
    OpRule("Concat", "inputs", OVERVIEW + ": ops that only move or compare values pass int8 on"),
)

ACTIVATIONS = (
    *("Relu", "Clip", "LeakyRelu", "Elu", "Sigmoid", "Silu", "Tanh", "HardSigmoid", "HardSwish", "Gelu"),
)
FUSIONS = (
    Fusion(
        (("Conv", "ConvTranspose", "Gemm"), ACTIVATIONS),
        OVERVIEW + ": the pair stands behind the activation that is fused into a layer",
    ),
    Fusion((("MatMul", "Add"), ("Relu", "Clip")), OVERVIEW + ": as above"),
    Fusion((("MatMul",), ("Bias",)), "MIL's linear has the bias"),
)


PALETTES = "https://apple.github.io/coremltools/docs-guides/source/opt-palettization-overview.html"
WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")

WEIGHT_FORMS = (
    WeightForm("int8-weights", WEIGHTED, GUIDE + ": constexpr_affine_dequantize, computed with in float16"),
    WeightForm("palette6", WEIGHTED, PALETTES + ": a table of 64 values"),
    WeightForm("palette4", WEIGHTED, PALETTES + ": a table of 16 values"),
)


def rules(profile: Profile) -> Rules:
    """Return rules: symmetric int8 per tensor, weights per output channel; ops between pairs stay float16."""
    # Not taken by the Neural Engine: a scale for each channel of an activation, nor blocks of weights, which
    # the CPU takes, silently (PER_CHANNEL).
    return Rules(
        target=profile.name,
        activations="int8",
        symmetric=True,
        ops=OPS,
        fusions=FUSIONS,
        bias="float",
        placements=("all", "all, centred", "no depthwise, centred"),
        channel_noise=ChannelNoise(0.05, "float", PER_CHANNEL),
        weight_forms=WEIGHT_FORMS,
    )
