"""The types of a target's ``quant_rules.py``: what it computes on integers, and how. Rows of data, each with
its source."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from edgekit.quantize.recipe import Dtype


@dataclass(frozen=True)
class OpRule:
    """One operator that a target computes on integers.

    Attributes:
        op: ONNX operator of the canonical graph.
        inputs: Places of the inputs that must be stored as integers; () for all that are not constant.
        weight: Place of the constant that is stored as integers, or None.
        weight_axis: Its axis of output channels; None for one scale for the whole constant.
        output: Where the scale of the output comes from: its ``own`` range; the one that it shares with the
            ``inputs`` (an op that only moves data); ``fixed``; or ``float``: the result is not stored as
            integers.
        fixed: Scale and zero point for ``fixed``, the zero point in int8 terms (-128 .. 127).
        source: Where this is written, or what was measured.
    """

    op: str
    inputs: tuple[int, ...]
    output: Literal["own", "inputs", "fixed", "float"]
    source: str
    weight: int | None = None
    weight_axis: int | None = None
    fixed: tuple[float, int] | None = None


@dataclass(frozen=True)
class Fusion:
    """Operators that a target runs as one kernel, the first one on integers: no pair stands inside.

    Attributes:
        ops: In order, e.g. ``("Conv", "Relu")``; ``Silu`` stands for the Sigmoid and Mul of one value.
        source: Where this is written, or what was measured.
    """

    ops: tuple[str, ...]
    source: str


@dataclass(frozen=True)
class Rules:
    """What a target asks of a quantized model.

    Attributes:
        target: For messages.
        activations: How activations are stored.
        symmetric: Whether their zero point is the middle: 0, or 128 for uint8.
        ops: What is computed on integers.
        fusions: Where no pair may stand.
        bias: ``int32``: a constant behind a DequantizeLinear of scale input x weight; ``float``.
        outputs: Whether graph outputs behind an integer op are stored as integers (and dequantized last).
        pair_limit: Where a kernel adds two products in int16, which saturates: the largest sum of two
            weights of one sign that meet there, when the activations use all of uint8. None: no such kernel.
        forbidden: What a converter must not emit, said for the report and the checks; each with its source.
    """

    target: str
    activations: Dtype
    symmetric: bool
    ops: tuple[OpRule, ...]
    fusions: tuple[Fusion, ...] = ()
    bias: Literal["int32", "float"] = "float"
    outputs: bool = False
    pair_limit: int | None = None
    forbidden: tuple[tuple[str, str], ...] = field(default=())
