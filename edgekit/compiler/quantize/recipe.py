"""Data types of the quantizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from edgekit.target.quant_rules import Dtype
from edgekit.tensor_spec import Array

RangeRule = Literal["minmax", "l2", "l4"]
Rounding = Literal["nearest", "gptq"]


@dataclass(frozen=True, eq=False)
class Affine:
    """Quantization parameters: real = scale * (stored - zero_point).

    Attributes:
        scale: float32, shape [] (per tensor) or [channels] (per channel, along ``axis``). Positive and
            normal.
        zero_point: Array of ``dtype``, with the shape of ``scale``: zero is always represented exactly.
        dtype: Data type of the stored integers.
        axis: The channel axis; None for per-tensor quantization.
    """

    scale: Array
    zero_point: Array
    dtype: Dtype
    axis: int | None = None


@dataclass(frozen=True, eq=False)
class QuantizedWeights:
    """The quantized constants of one node with weights.

    Attributes:
        stored: Integers, in the shape and layout of the node's own weights.
        affine: Symmetric (zero point 0); per output channel if the target supports that.
        bias: float32 [output channels], corrected; None if the node has none and needs none.
    """

    stored: Array
    affine: Affine
    bias: Array | None


@dataclass(frozen=True)
class Recipe:
    """Rules for choosing ranges and rounding weights. Manifests contain the fields unchanged.

    Attributes:
        ranges: ``minmax``, or the range with the least mean |error|^2 (``l2``, MSE) or |error|^4 (``l4``).
            The error is measured after the activation function if that is the only consumer.
        rounding: ``nearest``, or ``gptq``: later columns compensate each column's rounding error (Frantar et
            al., arXiv 2210.17323).
        bias_correction: Whether the mean error of each output channel is subtracted from the bias.
        compensation: Ridge of the regression of the float outputs on the quantized inputs, in units of the
            mean of the Hessian's diagonal. None turns it off.
        samples: Number of calibration samples for rounding weights.
        positions: Number of output positions sampled for one node, over all samples.
    """

    ranges: RangeRule = "l4"
    rounding: Rounding = "gptq"
    bias_correction: bool = True
    compensation: float | None = None
    samples: int = 16
    positions: int = 4096


@dataclass(frozen=True)
class QuantizationPlan:
    """Quantized values, nodes and weights of one canonical graph, for one target.

    Nodes are named by their first output, values by their own name: both are unique in a graph.

    Attributes:
        activations: Value -> its quantization. A Q/DQ pair follows its producer (or the graph input).
        nodes: Nodes that run in int8: they read the Q/DQ pairs of their inputs. Other nodes read the float
            value, or the pair's output if the producer is in this set.
        weights: Node -> its quantized constants; filled by ``optimize``.
    """

    activations: Mapping[str, Affine]
    nodes: frozenset[str]
    weights: Mapping[str, QuantizedWeights] = field(default_factory=dict)
