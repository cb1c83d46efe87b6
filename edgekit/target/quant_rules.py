"""The types of a target's ``quant_rules.py``: what it computes on integers, and how. Rows of data, each with
its source.

``place`` reads nothing else of a target: an operator without a row stays float, whatever stands around it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from edgekit.target.precisions import TABLE

Dtype = Literal["int8", "uint8", "int16", "int32"]


Output = Literal["own", "asked", "inputs", "fixed"]


@dataclass(frozen=True)
class OpRule:
    """One operator that a target computes on integers. Of several rows that fit a node, the first one holds.

    Attributes:
        op: ONNX operator of the canonical graph.
        output: Where the scale of the output comes from: its ``own`` range; ``asked``: the same, but the
            kernel writes floats just as well, so it is stored only where an integer node reads it; the one
            that it shares with the ``inputs`` (an op that only moves data); ``fixed``.
        source: Where this is written, or what was measured.
        inputs: Places of the inputs that must be stored as integers; () for all that are floats. ``weight``
            and ``bias`` are none of them.
        weight: Place of the constant that is stored as integers; the row fits only where it is constant.
        weight_axis: Its axis of output channels; None for one scale for the whole constant.
        weight_ranks: Numbers of dimensions of the weight that the row is for; () for all.
        bias: Place of the bias, if there may be one; where it is there, it must be constant, one number for
            each output channel.
        fixed: Scale and zero point for ``fixed``, the zero point in int8 terms (-128 .. 127).
        where: Attribute -> the values that the row is for, ONNX's default where the node has none, e.g.
            ``(("group", (1,)),)``.
        ranks: Numbers of dimensions of the first input that the row is for; () for all.
        constants: Whether a constant among the inputs is stored as integers too; if not, a node that has one
            there stays float.
        alone: Whether it is worth storing the inputs for this op where no neighbour computes on integers.
            Ops with a weight are; moves and elementwise ops only ride along.
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
    alone: bool = False


@dataclass(frozen=True)
class Fusion:
    """Operators that a target runs as one kernel, the first one on integers: no pair stands inside.

    Attributes:
        ops: In order; each is a choice, e.g. ``(("Conv", "Gemm"), ("Relu", "Clip"))``. ``Silu`` stands for
            the Sigmoid and Mul of one value, ``Bias`` for an Add of one constant for each output channel.
        source: Where this is written, or what was measured.
    """

    ops: tuple[tuple[str, ...], ...]
    source: str


@dataclass(frozen=True)
class ChannelNoise:
    """What is done where the channels of a depthwise Conv's input can't share one scale.

    The noise of one scale for all, over the signal of each channel, averaged over the channels (``numerics.
    channel_noise``), tells such a tensor: in YOLOX-nano one has .28, all others .016 or less.

    Attributes:
        above: The noise from which on it is done.
        act: ``scales``: one scale for each channel, with one zero point for all; ``float``: the depthwise
            Conv and what makes its input stay float; ``split``: the graph is rewritten (``split_silu``).
        source: Where this is written, or what was measured.
    """

    above: float
    act: Literal["scales", "float", "split"]
    source: str


FormName = str
"""A precision that is ``weights_alone`` (edgekit/target/precisions.py). ``int8-weights``: stored in int8, and
computed with as floats. ``int8-dynamic``: the kernel multiplies integers, and rounds its input to 8 bits by
the range that it finds in it, run by run. ``palette6``, ``palette4``: stored as the number of one of 64 or 16
floats."""
PALETTES = tuple(row.name for row in TABLE if row.from_table)
"""Forms that the compiler makes of float weights; the others are pairs in the model that it is given."""


@dataclass(frozen=True)
class WeightForm:
    """Operators whose weights alone are stored as integers: the Q/DQ graph has no pair around an activation.

    Attributes:
        name: What becomes of the stored weights.
        ops: Operators whose rows with a weight hold for this too.
        source: Where this is written, or what was measured.
        grouped: Whether Convs with groups are among them.
    """

    name: FormName
    ops: tuple[str, ...]
    source: str
    grouped: bool = True


@dataclass(frozen=True)
class Rules:
    """What a target asks of a quantized model.

    Attributes:
        target: For messages.
        activations: How activations are stored.
        symmetric: Whether their zero point is the middle: 0, or 128 for uint8.
        centred: Whether, where they are symmetric, a value whose range is not may be stored less a constant
            (``place``), which the biases of its readers take up. A placement says so, not a target.
        ops: What is computed on integers.
        fusions: Where no pair may stand.
        bias: ``int32``: a constant behind a DequantizeLinear of scale input x weight; ``float``.
        outputs: Whether the nodes behind the last op with a weight compute on integers too. They rarely
            should: boxes and scores would share one scale there.
        pair_limit: Where a kernel adds two products in int16, which saturates: the largest sum of two
            weights of one sign that meet there, when the activations use all of uint8. None: no such kernel.
        channel_noise: What is done about channels that can't share one scale; None: nothing.
        placements: Names of placements (placements.py) worth trying, the likeliest winner first.
        rewrites: Names of exact rewrites (rewrites.py) of the float graph that the plan is made for.
        weight_forms: Ways to store weights alone, of each name the likeliest to win first; () for none.
        forbidden: What a converter must not emit, said for the report and the checks; each with its source.
    """

    target: str
    activations: Dtype
    symmetric: bool
    ops: tuple[OpRule, ...]
    fusions: tuple[Fusion, ...] = ()
    bias: Literal["int32", "float"] = "float"
    centred: bool = False
    outputs: bool = False
    pair_limit: int | None = None
    channel_noise: ChannelNoise | None = None
    placements: tuple[str, ...] = ("all",)
    rewrites: tuple[str, ...] = ()
    weight_forms: tuple[WeightForm, ...] = ()
    forbidden: tuple[tuple[str, str], ...] = field(default=())
