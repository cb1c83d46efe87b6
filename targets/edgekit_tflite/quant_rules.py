"""Quantization rules of TFLite: its 8-bit specification, and the part that XNNPACK supports."""

from __future__ import annotations

from edgekit.target.profile import Profile
from edgekit.target.quant_rules import ChannelNoise, Fusion, OpRule, Rules, WeightForm, gemm_rules

SPEC = "https://ai.google.dev/edge/litert/conversion/tensorflow/quantization/quantization_spec"

OPS = (
    OpRule("Conv", "own", SPEC + ": CONV_2D, DEPTHWISE_CONV_2D", (0,), 1, 0, bias=2, ranks=(3, 4)),
    OpRule.conv_transpose("own", SPEC + ": TRANSPOSE_CONV", ranks=(4,)),
    *gemm_rules("own", SPEC + ": FULLY_CONNECTED; XNNPACK takes a scale for each output channel"),
    OpRule.matmul("own", SPEC + ": FULLY_CONNECTED; BATCH_MATMUL of integers is not in XNNPACK"),
    OpRule("Sigmoid", "fixed", SPEC + ": LOGISTIC", fixed=(1 / 256, -128)),
    OpRule("Tanh", "fixed", SPEC + ": TANH", fixed=(1 / 128, 0)),
    OpRule("Softmax", "fixed", SPEC + ": SOFTMAX", fixed=(1 / 256, -128)),
    *(OpRule(op, "own", f"{SPEC}: {op.upper()}", constants=True) for op in ("Add", "Mul", "Sub")),
    OpRule("GlobalAveragePool", "own", SPEC + ": MEAN"),
    OpRule("ReduceMean", "own", SPEC + ": MEAN", (0,)),
    OpRule("HardSwish", "own", SPEC + ": HARD_SWISH; where it is 4-D, a gate made by a depthwise Conv"),
    OpRule("LeakyRelu", "own", SPEC + ": LEAKY_RELU"),
    OpRule("Relu", "own", SPEC + ": RELU"),
    OpRule("AveragePool", "inputs", SPEC + ": AVERAGE_POOL_2D", ranks=(4,)),
    OpRule("Concat", "inputs", SPEC + ": CONCATENATION"),
    *(
        OpRule(op, "inputs", f"{SPEC}: {name}", (0,))
        for op, name in (
            ("DepthToSpace", "DEPTH_TO_SPACE"),
            ("Flatten", "RESHAPE"),
            ("MaxPool", "MAX_POOL_2D"),
            ("Pad", "PAD"),
            ("Reshape", "RESHAPE"),
            ("Slice", "SLICE"),
            ("SpaceToDepth", "SPACE_TO_DEPTH"),
            ("Split", "SPLIT"),
            ("Squeeze", "RESHAPE"),
            ("Transpose", "TRANSPOSE"),
            ("Unsqueeze", "RESHAPE"),
        )
    ),
    OpRule(
        "Resize",
        "inputs",
        SPEC + ": RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR",
        (0,),
        where=(("mode", ("nearest", "linear")),),
        ranks=(4,),
    ),
)

FUSIONS = (
    Fusion(
        (("Conv", "ConvTranspose", "Gemm", "Add", "Mul", "Sub"), ("Relu", "Clip")),
        "tensorflow/compiler/mlir/lite/schema/schema.fbs: ActivationFunctionType; a Clip within the stored"
        " range is done by its ends",
    ),
    Fusion(
        (("MatMul",), ("Bias",)), "tensorflow/compiler/mlir/lite/schema/schema.fbs: FULLY_CONNECTED's bias"
    ),
)


DYNAMIC = "https://ai.google.dev/edge/litert/conversion/tensorflow/quantization/post_training_quant"

WEIGHT_FORMS = (
    WeightForm(
        "int8-weights",
        ("Conv", "Gemm", "MatMul"),
        "measured: XNNPACK folds a DEQUANTIZE of a constant when it packs weights; 0.99 to 1.00 of fp32",
    ),
    WeightForm(
        "int8-dynamic",
        ("Gemm", "MatMul"),
        DYNAMIC + "; FULLY_CONNECTED of floats with int8 weights: XNNPACK's qd8-f32-qc8w, 0.82 on a ViT",
    ),
    WeightForm(
        "int8-dynamic",
        ("Conv", "Gemm", "MatMul"),
        DYNAMIC + "; CONV_2D too: 0.90 (COCO-SSD) to 1.13 (vww) of fp32's time with AVX2, and a third of the"
        " time on a ResNet-50 with VNNI. A depthwise Conv is not in XNNPACK, and 3.5 times as slow",
        grouped=False,
    ),
)


def rules(profile: Profile) -> Rules:
    """Return rules: int8 activations with a zero point; int8 weights in [-127, 127], a scale per channel."""
    # No two scales around an op that only moves data: a QUANTIZE op would stand between them (SPEC).
    return Rules(
        target=profile.name,
        activations="int8",
        symmetric=False,
        ops=OPS,
        fusions=FUSIONS,
        bias="int32",
        channel_noise=ChannelNoise(
            0.05, "split", "a depthwise input has one scale; YOLOX-nano is useless with it (mAP below .1)"
        ),
        rewrites=("linear gates", "split SiLU"),
        weight_forms=WEIGHT_FORMS,
        placements=(
            "all",
            "128 columns and riders",
            "128 columns",
            "64 columns",
            "256 columns",
            "no riders",
            "no depthwise",
        ),
    )
