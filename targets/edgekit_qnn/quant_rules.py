"""Quantization rules of the Hexagon NPU: uint8 or uint16 activations, int8 weights, an int32 bias.

Each row was tried alone on the emulator of onnxruntime-qnn 2.7.0, between two pairs, with the CPU switched
off, in both types (``tests/targets/qnn/test_quant_rules.py``). int8 activations are not used: LeakyRelu,
HardSigmoid and Neg are refused with them, and a Conv with uint8 weights gives wrong values.
"""

from __future__ import annotations

from edgekit.target.profile import Profile
from edgekit.target.quant_rules import ChannelNoise, Fusion, OpRule, Rules, gemm_rules

TRIED = "tried on the HTP emulator of onnxruntime-qnn 2.7.0"
SUPPLEMENT = "https://docs.qualcomm.com/bundle/publicresource/topics/80-63442-50/HtpOpDefSupplement.html"

OPS = (
    OpRule(
        "Conv",
        "own",
        f"{TRIED}: 1-D and 2-D, grouped, dilated; {SUPPLEMENT}",
        (0,),
        1,
        0,
        bias=2,
        ranks=(3, 4),
    ),
    OpRule.conv_transpose("own", f"{TRIED}; {SUPPLEMENT}", ranks=(4,)),
    *gemm_rules("own", f"{TRIED}: FullyConnected, whose output can't be float"),
    OpRule.matmul("own", TRIED),
    OpRule("MatMul", "own", f"{TRIED}: of two activations", (0, 1)),
    *(OpRule(op, "own", TRIED, constants=True) for op in ("Add", "Sub", "Mul", "Max", "Min")),
    *(
        OpRule(op, "own", TRIED, (0,))
        for op in (
            *("AveragePool", "GlobalAveragePool", "ReduceMean", "ReduceSum", "ReduceMax", "Relu", "Clip"),
            *("LeakyRelu", "Elu", "HardSwish", "HardSigmoid", "Gelu", "Softplus", "Tanh", "Exp"),
        )
    ),
    OpRule("Sigmoid", "fixed", f"{TRIED}: 1/256 covers what it can give", (0,), fixed=(1 / 256, -128)),
    OpRule("Softmax", "fixed", f"{TRIED}: 1/256 covers what it can give", (0,), fixed=(1 / 256, -128)),
    OpRule("Concat", "inputs", f"{TRIED}: with one scale it only moves data"),
    *OpRule.moves(
        "DepthToSpace SpaceToDepth Flatten MaxPool GlobalMaxPool Reshape Slice Split Squeeze Transpose"
        " Unsqueeze Gather",
        f"{TRIED}: up to five dimensions",
    ),
    OpRule.nearest(f"{TRIED}: nearest neighbour only moves data"),
    OpRule("Resize", "own", TRIED, (0,), where=(("mode", ("linear",)),)),
)

FUSIONS = (
    Fusion(
        (
            ("Conv", "ConvTranspose", "Gemm", "Add", "Mul", "AveragePool", "GlobalAveragePool"),
            ("Relu", "Clip"),
        ),
        f"{TRIED}: taken as the range of the output",
    ),
)


def rules(profile: Profile) -> Rules:
    """Return the rules, which are the same for every version of the NPU, v68 to v81."""
    # Forms that it refuses or computes wrongly (TRIED):
    # int8 activations: LeakyRelu, HardSigmoid, Neg and LogSoftmax are refused
    # uint8 weights: wrong values with int8 activations, refused with int16 ones
    # a Gemm between pairs with a float output: refused
    # Div in 16 bits: 13 dB where the divisor spans some decades
    # six dimensions: refused, in Reshape and Transpose
    return Rules(
        target=profile.name,
        activations="uint8",
        symmetric=False,
        ops=OPS,
        fusions=FUSIONS,
        bias="int32",
        outputs=True,
        channel_noise=ChannelNoise(
            0.05,
            "split",
            f"{TRIED}: an activation has one scale; with one for its stem YOLOX-nano has a self-mAP of .37,"
            " with a SiLU that is split .82",
        ),
        rewrites=("split SiLU",),
        placements=("all", "all, 16 bits"),
    )
