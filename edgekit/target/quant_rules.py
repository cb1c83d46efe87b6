"""The types of a target's ``quant_rules.py``: which operators it computes on integers, and how. The rules are
rows of data, each with its source.

``place`` reads nothing else of a target: an operator without a row stays float, whatever its neighbours are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edgekit.target.profile import Profile

VNNI = ("avx512_vnni", "avx_vnni", "avxvnni")
Dtype = Literal["int8", "uint8", "int16", "uint16", "int32", "float8e4m3fn"]
Output = Literal["own", "asked", "inputs", "fixed"]


@dataclass(frozen=True)
class OpRule:
    """One operator that a target computes on integers. Of several rows that match, the first one applies.

    Attributes:
        op: ONNX operator of the canonical graph.
        output: Source of the output's scale. ``own``: its own range. ``asked``: the same, but the kernel can
            also write floats, so the output is quantized only if an integer node reads it. ``inputs``:
            the scale of the inputs (an op that only moves data). ``fixed``: the value in ``fixed``.
        source: Document or measurement that states this.
        inputs: Indices of the inputs that must be quantized; () for all float inputs. ``weight`` and ``bias``
            are not among them.
        weight: Index of the input that is the weight; the row matches only if it is a constant.
        weight_axis: Its axis of output channels; None for one scale for the whole constant.
        weight_ranks: Numbers of dimensions of the weight that the row is for; () for all.
        bias: Index of the bias input, if the op has one; a bias must be a constant with one value for each
            output channel.
        fixed: Scale and zero point for ``fixed``, the zero point in int8 terms (-128 .. 127).
        where: Attribute -> the values that the row is for, ONNX's default if the node has none, e.g.
            ``(("group", (1,)),)``.
        ranks: Numbers of dimensions of the first input that the row is for; () for all.
        constants: Whether constant inputs are quantized too; if not, a node with one stays float.
    """

    op: str
    output: Output
    source: str
    inputs: tuple[int, ...] = ()
    weight: int | None = None
    weight_axis: int | None = None
    weight_ranks: tuple[int, ...] = ()
    bias: int | None = None
    fixed: tuple[float, int] | None = None
    where: tuple[tuple[str, tuple[object, ...]], ...] = ()
    ranks: tuple[int, ...] = ()
    constants: bool = False

    @classmethod
    def matmul(cls, output: Output, source: str) -> OpRule:
        """Return the row of a MatMul with a constant weight of two dimensions."""
        return cls("MatMul", output, source, (0,), weight=1, weight_axis=1, weight_ranks=(2,))

    @classmethod
    def conv_transpose(cls, output: Output, source: str, ranks: tuple[int, ...] = ()) -> OpRule:
        """Return the row of a ConvTranspose of one group."""
        return cls("ConvTranspose", output, source, (0,), 1, 1, bias=2, where=(("group", (1,)),), ranks=ranks)

    @classmethod
    def moves(cls, ops: str, source: str) -> tuple[OpRule, ...]:
        """Return the rows of ops that only move data, named in one text: ``MaxPool Reshape``."""
        return tuple(cls(op, "inputs", source, (0,)) for op in ops.split())

    @classmethod
    def nearest(cls, source: str) -> OpRule:
        """Return the row of a Resize to the nearest neighbour, which only moves data."""
        return cls("Resize", "inputs", source, (0,), where=(("mode", ("nearest",)),))


def gemm_rules(output: Output, source: str) -> tuple[OpRule, OpRule]:
    """Return the rows of a Gemm with a constant weight, as it is and transposed."""
    plain, transposed = (
        OpRule(
            "Gemm",
            output,
            source,
            (0,),
            weight=1,
            weight_axis=1 - transposed,
            bias=2,
            where=(("transA", (0,)), ("transB", (transposed,)), ("alpha", (1.0,)), ("beta", (1.0,))),
        )
        for transposed in (0, 1)
    )
    return plain, transposed


def is_arm(profile: Profile) -> bool:
    """Return whether a profile states an ARM architecture."""
    return "arch" in profile.facts and profile.facts["arch"].value.lower() in ("aarch64", "arm64", "armv7l")


def pair_limit(profile: Profile) -> int | None:
    """Return the limit of two neighbouring int8 weights if uint8 is multiplied by VPMADDUBSW, on x86
    without VNNI: 255 * (128 + 1) would be over 32767. None elsewhere."""
    isa = profile.facts["isa"].value if "isa" in profile.facts else ""
    return None if is_arm(profile) or any(name in isa for name in VNNI) else 128


@dataclass(frozen=True)
class Fusion:
    """Operators that a target runs as one kernel, the first one on integers, without Q/DQ pairs between them.

    Attributes:
        ops: In order; each is a choice, e.g. ``(("Conv", "Gemm"), ("Relu", "Clip"))``. ``Silu`` stands for
            the Sigmoid and Mul of one value, ``Bias`` for an Add of one constant for each output channel.
        source: Document or measurement that states this.
    """

    ops: tuple[tuple[str, ...], ...]
    source: str


@dataclass(frozen=True)
class ChannelNoise:
    """Treatment of a depthwise Conv whose input channels can't share one scale.

    The noise of one scale for all, over the signal of each channel, averaged over the channels (``numerics.
    channel_noise``), identifies such a tensor: in YOLOX-nano one has .28, all others .016 or less.

    Attributes:
        above: The noise above which this applies.
        act: ``scales``: one scale for each channel, with one zero point for all; ``float``: the depthwise
            Conv and the producer of its input stay float; ``split``: the graph is rewritten (``split_silu``).
        source: Document or measurement that states this.
    """

    above: float
    act: Literal["scales", "float", "split"]
    source: str


FormName = str
"""A precision of the stage ``weights`` (edgekit/target/precisions.py). ``int8-weights``: stored in int8, and
computed with as floats. ``int8-dynamic``: the kernel multiplies integers, and rounds its input to 8 bits by
the range that it finds in it, run by run. ``palette6``, ``palette4``: stored as the number of one of 64 or 16
floats."""


@dataclass(frozen=True)
class WeightForm:
    """Operators with weight-only quantization: the Q/DQ graph has no pair around an activation.

    Attributes:
        name: The weight-only precision.
        ops: Operators whose rows with a weight apply to this too.
        source: Document or measurement that states this.
        grouped: Whether grouped Convs are included.
    """

    name: FormName
    ops: tuple[str, ...]
    source: str
    grouped: bool = True


@dataclass(frozen=True)
class Rules:
    """Requirements of a target on a quantized model.

    Attributes:
        target: Name of the target, for messages.
        activations: Element type of stored activations.
        symmetric: Whether the zero point is the middle of the range: 0, or 128 for uint8.
        centred: Whether, with symmetric activations, a constant may be subtracted from a value with an
            asymmetric range (``place``); the biases of its consumers compensate. Set by placements only.
        ops: Operators that are computed on integers.
        fusions: Places where no Q/DQ pair is allowed.
        bias: ``int32``: a constant followed by a DequantizeLinear of scale input x weight; ``float``.
        outputs: Whether the nodes after the last op with a weight compute on integers too. They rarely
            should: boxes and scores would share one scale there.
        integers: Whether everything computes on integers that can, the nodes after the last op with a
            weight too, and no block is kept in float for accuracy: for chips that leave floats to another
            processor.
        pair_limit: For kernels that add two products in int16, which saturates: the largest sum of two such
            weights of one sign, when the activations use all of uint8. None means no such kernel.
        channel_noise: Treatment of channels that can't share one scale. None means like the others.
        placements: Names of placements (placement_presets.py) to search, the most promising first.
        rewrites: Names of exact rewrites (rewrites.py) that are applied to the float graph first.
        weight_forms: Weight-only forms, of each name the most promising first; () for none.
    """

    target: str
    activations: Dtype
    symmetric: bool
    ops: tuple[OpRule, ...]
    fusions: tuple[Fusion, ...] = ()
    bias: Literal["int32", "float"] = "float"
    centred: bool = False
    outputs: bool = False
    integers: bool = False
    pair_limit: int | None = None
    channel_noise: ChannelNoise | None = None
    placements: tuple[str, ...] = ("all",)
    rewrites: tuple[str, ...] = ()
    weight_forms: tuple[WeightForm, ...] = ()
