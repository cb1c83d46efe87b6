"""What Core ML computes on integers: int8 activations of one symmetric scale, int8 weights of one a channel.

On the Neural Engine of A17 Pro, M4 and later that doubles the rate (measured by third parties: 33.9 against
18.0 TOPS on M5, 35.1 against 18.6 on M4). On older ones the pairs cost more than they save: the weights alone
are worth storing so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.quantize.rules import ChannelNoise, Fusion, OpRule, Rules

if TYPE_CHECKING:
    from edgekit.profile import Profile

GUIDE = "https://apple.github.io/coremltools/docs-guides/source/opt-quantization-perf.html"
OVERVIEW = "https://apple.github.io/coremltools/docs-guides/source/opt-quantization-overview.html"
PER_CHANNEL = (
    "https://github.com/apple/coremltools/issues/2510: ANE only support per-cout/per-tensor quantization"
)

OPS = (
    OpRule("Conv", "own", GUIDE + ": int8-int8 compute", (0,), 1, 0, bias=2, ranks=(3, 4)),
    OpRule(
        "ConvTranspose", "own", GUIDE + ": int8-int8 compute", (0,), weight=1, weight_axis=1, bias=2,
        where=(("group", (1,)),), ranks=(4,),
    ),
    *(
        OpRule(
            "Gemm", "own", GUIDE + ": int8-int8 compute; linear", (0,), weight=1,
            weight_axis=1 - transposed, bias=2,
            where=(("transA", (0,)), ("transB", (transposed,)), ("alpha", (1.0,)), ("beta", (1.0,))),
        )
        for transposed in (0, 1)
    ),
    OpRule(
        "MatMul", "own", GUIDE + ": int8-int8 compute; linear", (0,), weight=1, weight_axis=1,
        weight_ranks=(2,),
    ),
    OpRule("Add", "own", OVERVIEW + ": activations are quantized between layers, residual sums among them"),
    *(
        OpRule(op, "inputs", OVERVIEW + ": ops that only move or compare values pass int8 on", (0,))
        for op in ("Flatten", "MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")
    ),
    OpRule("Concat", "inputs", OVERVIEW + ": ops that only move or compare values pass int8 on"),
)  # fmt: skip

FUSIONS = (
    Fusion(
        (("Conv", "ConvTranspose", "Gemm", "MatMul", "Add"), ("Relu", "Clip")),
        OVERVIEW + ": the pair stands behind the activation that is fused into a layer",
    ),
    Fusion((("MatMul",), ("Bias",)), "MIL's linear has the bias"),
)


def rules(profile: Profile) -> Rules:
    """Symmetric int8 per tensor, weights per output channel; every op between pairs stays float16."""
    return Rules(
        target=profile.name,
        activations="int8",
        symmetric=True,
        ops=OPS,
        fusions=FUSIONS,
        bias="float",
        channel_noise=ChannelNoise(0.05, "float", PER_CHANNEL),
        forbidden=(
            ("a scale for each channel of an activation", PER_CHANNEL),
            ("blocks of weights", PER_CHANNEL + "; the CPU takes them, silently"),
        ),
    )
