"""Quantization rules of ONNX Runtime on a CPU: the pairs that its QDQ transformer turns into kernels.

SELECTORS: https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/core/optimizer/qdq_transformer/
selectors_actions/qdq_selector_action_transformer.cc
"""

from __future__ import annotations

from edgekit.target.profile import Profile
from edgekit.target.quant_rules import (
    ChannelNoise,
    Fusion,
    OpRule,
    Rules,
    WeightForm,
    gemm_rules,
    is_arm,
    pair_limit,
)

SELECTORS = "onnxruntime/core/optimizer/qdq_transformer/selectors_actions/qdq_selector_action_transformer.cc"
ADVICE = "https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html"

OPS = (
    OpRule("Conv", "own", SELECTORS + ": ConvQDQRules, QLinearConv", (0,), 1, 0, bias=2),
    *gemm_rules("asked", SELECTORS + ": GemmQDQRules, com.microsoft.QGemm, whose output may be float"),
    OpRule.matmul(
        "asked", SELECTORS + ": MatMulQDQRules, QLinearMatMul or com.microsoft.MatMulIntegerToFloat"
    ),
    *(
        OpRule(op, "own", SELECTORS + ": BinaryOpQDQRules, com.microsoft.QLinear" + op)
        for op in ("Add", "Mul")
    ),
    *(
        OpRule(op, "own", SELECTORS + ": UnaryOpQDQRules, com.microsoft.QLinear" + op)
        for op in ("AveragePool", "GlobalAveragePool", "LeakyRelu")
    ),
    OpRule("Concat", "inputs", SELECTORS + ": VariadicOpQDQRules; with one scale it copies bytes"),
    *OpRule.moves(
        "DepthToSpace Flatten MaxPool Reshape Resize Slice Split Squeeze Transpose Unsqueeze",
        SELECTORS + ": DropQDQNodesRules",
    ),
)
"""No row for what it has no integer kernel for (ConvTranspose, HardSwish, HardSigmoid), or only a slow one:
Sigmoid and with it SiLU took 7.5 of YOLOX-nano's 8.9 ms (QLinearSigmoid, QLinearMul)."""

FUSIONS = (
    Fusion(
        (("Conv", "Add", "Mul", "Gemm", "AveragePool", "GlobalAveragePool"), ("Relu", "Clip")),
        "onnxruntime/core/optimizer/qdq_transformer/relu_quantizelinear.cc, clip_quantizelinear.cc: where"
        " the stored range lies within the clip's, QuantizeLinear does its work",
    ),
)


WEIGHT_FORMS = (
    WeightForm(
        "int8-weights",
        ("Conv", "Gemm", "MatMul"),
        "measured: with the session's QDQ transformer off the weights are widened at load, and the time is"
        " that of fp32 (0.99 to 1.00); with it on 1.15 (PP-OCR recognition) to 1.94 (a ViT, MatMulNBits)",
    ),
    WeightForm(
        "int8-dynamic",
        ("Gemm", "MatMul"),
        ADVICE + ": DynamicQuantizeLinear, MatMulInteger; measured on a ViT 0.58 of fp32's time. Its"
        " ConvInteger is a plain kernel",
    ),
)


def rules(profile: Profile) -> Rules:
    """Return rules: uint8 activations with int8 weights on x86, int8 with int8 on ARM. On x86 the transformer
    skips pairs of int8 (``QDQIsInt8Allowed``), unless a session requests them.

    A profile without an architecture is treated as x86, because uint8 runs everywhere.
    """
    # No QuantizeLinear per axis on an activation, measured on YOLOX-nano: 67 to 131 ms for 7; the NHWC pass
    # moves the channels last, and the per-axis kernels are scalar there.
    return Rules(
        target=profile.name,
        activations="int8" if is_arm(profile) else "uint8",
        symmetric=False,
        ops=OPS,
        fusions=FUSIONS,
        bias="int32",
        pair_limit=pair_limit(profile),
        channel_noise=ChannelNoise(0.05, "float", "YOLOX-nano's stem has 0.28, every other tensor 0.016"),
        placements=(
            "all",
            "no riders",
            "128 columns and riders",
            "128 columns",
            "256 columns",
            "64 columns",
            "no depthwise",
        ),
        weight_forms=WEIGHT_FORMS,
    )
