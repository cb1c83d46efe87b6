"""The data that passes between the rooms of the quantizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from edgekit.target.quant_rules import Dtype
from edgekit.tensors import Array

RangeRule = Literal["minmax", "l2", "l4"]
Rounding = Literal["nearest", "gptq"]


@dataclass(frozen=True, eq=False)
class Affine:
    """How integers stand for reals: real = scale * (stored - zero_point).

    Attributes:
        scale: float32, shape [] or, one for each index of ``axis``, [channels]. Positive and normal.
        zero_point: Of ``dtype``, shape of ``scale``: zero is always represented exactly.
        dtype: Of what is stored.
        axis: The axis that ``scale`` runs along; None for one scale for the whole tensor.
    """

    scale: Array
    zero_point: Array
    dtype: Dtype
    axis: int | None = None


@dataclass(frozen=True, eq=False)
class QuantizedWeights:
    """The constants of one node that multiplies by weights.

    Attributes:
        stored: Integers, in the shape and layout of the node's own weights.
        affine: Symmetric (zero point 0), per output channel where the target takes that.
        bias: float32 [output channels], corrected; None where the node has none and needs none.
    """

    stored: Array
    affine: Affine
    bias: Array | None


@dataclass(frozen=True)
class Recipe:
    """How ranges are chosen and weights are rounded. Held-out samples decide between recipes.

    Attributes:
        ranges: ``minmax`` of what was observed, or the range with the least mean |error|^2 or ^4, after the
            activation where the value only goes into one.
        rounding: ``nearest``, or ``gptq``: each column's rounding error is made up for by the columns after
            it (Frantar et al., arXiv 2210.17323).
        bias_correction: Whether the mean error of each output channel is taken out of the bias.
        compensation: Ridge of the regression of the float outputs on the quantized inputs, in units of the
            mean of the Hessian's diagonal; None: off.
        samples: How many fit samples the weights are rounded on.
        positions: Output positions in all that are looked at for one node.
    """

    ranges: RangeRule = "l4"
    rounding: Rounding = "gptq"
    bias_correction: bool = True
    compensation: float | None = None
    samples: int = 16
    positions: int = 4096


@dataclass(frozen=True)
class QuantizationPlan:
    """What is quantized in one canonical graph, for one target.

    Nodes are named by their first output, values by their own name: both are unique in a graph.

    Attributes:
        activations: Value -> how it is stored. A Q/DQ pair stands behind its producer (or the graph input).
        nodes: Nodes that compute on integers: they read the pairs of their inputs. A node that is not here
            reads floats, behind the pair only where the producer of the value is here.
        weights: Node -> its quantized constants; filled by ``weights``.
    """

    activations: Mapping[str, Affine]
    nodes: frozenset[str]
    weights: Mapping[str, QuantizedWeights] = field(default_factory=dict)
