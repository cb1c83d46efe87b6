"""Quantization rules of OpenVINO's CPU plugin: its low precision transformations.

LPT: https://docs.openvino.ai/2024/documentation/openvino-extensibility/openvino-plugin-library/
advanced-guides/low-precision-transformations.html
"""

from __future__ import annotations

from edgekit.target.profile import Profile
from edgekit.target.quant_rules import ChannelNoise, Fusion, OpRule, Rules, WeightForm, gemm_rules, pair_limit

LPT = (
    "https://docs.openvino.ai/2024/documentation/openvino-extensibility/openvino-plugin-library/"
    "advanced-guides/low-precision-transformations.html"
)

OPS = (
    OpRule("Conv", "asked", LPT + ": ConvolutionTransformation", (0,), 1, 0, bias=2),
    OpRule.conv_transpose(
        "asked", LPT + ": ConvolutionBackpropDataTransformation; floats on a CPU with AVX2 alone (2026.4)"
    ),
    *gemm_rules("asked", LPT + ": MatMulTransformation"),
    OpRule.matmul("asked", LPT + ": MatMulTransformation"),
    *(
        OpRule(op, "asked", f"{LPT}: {name}Transformation")
        for op, name in (
            ("Add", "Add"),
            ("Mul", "Multiply"),
            ("AveragePool", "AvgPool"),
            ("GlobalAveragePool", "ReduceMean"),
        )
    ),
    OpRule("Concat", "inputs", LPT + ": ConcatTransformation"),
    *(
        OpRule(op, "inputs", f"{LPT}: {name}Transformation", (0,))
        for op, name in (
            ("DepthToSpace", "DepthToSpace"),
            ("Flatten", "Reshape"),
            ("MaxPool", "MaxPool"),
            ("Reshape", "Reshape"),
            ("Resize", "Interpolate"),
            ("Slice", "StridedSlice"),
            ("Split", "Split"),
            ("Squeeze", "Squeeze"),
            ("Transpose", "Transpose"),
            ("Unsqueeze", "Unsqueeze"),
        )
    ),
)

FUSIONS = (
    Fusion(
        (
            ("Conv", "ConvTranspose", "Gemm", "Add", "Mul"),
            (
                "Clip",
                "Elu",
                "Gelu",
                "HardSigmoid",
                "HardSwish",
                "LeakyRelu",
                "Relu",
                "Sigmoid",
                "Silu",
                "Softplus",
                "Tanh",
            ),
        ),
        "openvino/src/plugins/intel_cpu/src/graph_optimizer.cpp: FuseConvolutionAndSimpleOperation; a pair"
        " between a Conv and its SiLU cost YOLOX-nano the fusion",
    ),
    Fusion(
        (("MatMul",), ("Bias",)),
        "openvino/src/plugins/intel_cpu/src/graph_optimizer.cpp: FuseFCAndSimpleOperation",
    ),
)


WEIGHT_FORMS = (
    WeightForm(
        "int8-weights",
        ("Conv", "ConvTranspose", "Gemm", "MatMul"),
        "https://docs.openvino.ai/2024/openvino-workflow/model-optimization-guide/weight-compression.html;"
        " measured: 0.90 (vww) to 1.02 (a ViT) of fp32's time",
    ),
    WeightForm(
        "int8-dynamic",
        ("Gemm", "MatMul"),
        "https://docs.openvino.ai/2024/openvino-workflow/running-inference/inference-devices-and-modes/"
        "cpu-device.html: DYNAMIC_QUANTIZATION_GROUP_SIZE; measured with VNNI: 0.44 of fp32's time on"
        " MiniLM-L3 at 32.7 dB; without VNNI floats",
    ),
)


def rules(profile: Profile) -> Rules:
    """Return rules: uint8 activations with a zero point, read by products; kernels also write floats."""
    # No pair between a Conv and its activation: openvino/src/plugins/intel_cpu/src/graph_optimizer.cpp fuses
    # only neighbours.
    return Rules(
        target=profile.name,
        activations="uint8",
        symmetric=False,
        ops=OPS,
        fusions=FUSIONS,
        bias="float",
        pair_limit=pair_limit(profile),
        channel_noise=ChannelNoise(
            0.05,
            "scales",
            "measured on YOLOX-nano: with one zero point for all channels every depthwise Conv stays on"
            " brgconv_dw; with one for each, 26 of 30 fall to a slower kernel",
        ),
        weight_forms=WEIGHT_FORMS,
        placements=(
            "all",
            "no riders",
            "no depthwise",
            "64 columns",
            "128 columns",
            "256 columns",
        ),
    )
