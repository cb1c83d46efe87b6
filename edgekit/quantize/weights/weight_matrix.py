"""A node with weights seen as a matrix product: which numbers of its input meet which column of weights.

Rounding works on matrices ``[groups, outputs, columns]``; this file makes them of a node's own layout, puts
the integers back, and reads the inputs that meet the columns at chosen positions of the output. A position is
one place of the output over all its channels: a pixel of a Conv, a row of a Gemm or MatMul.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from edgekit.model.node_checks import static_dims
from edgekit.model.rewriting import array_of, float_of, input_of, int_of, ints_of, only_user
from edgekit.quantize.placement.kernels import node_name, output_channels
from edgekit.quantize.weights.rounding import pairs_of
from edgekit.target.quant_rules import OpRule
from edgekit.tensors import Array


@dataclass(frozen=True, eq=False)
class WeightMatrix:
    """A node that multiplies by constant weights.

    Attributes:
        node: Conv, ConvTranspose, Gemm or MatMul.
        rule: Its row in the target's rules.
        weights: float32, in the node's own layout.
        bias: float32 [output channels], zeros where the node could have one; None where there is no place for
            one.
        bias_at: Node and place of the input that the bias is: the node's own, or of the Add behind it.
        groups: Groups of a Conv, else 1.
        alpha: What the product is multiplied by: of a Gemm, else 1.
        beta: What its own bias is multiplied by: of a Gemm, else 1.
    """

    node: ir.Node
    rule: OpRule
    weights: Array
    bias: Array | None
    bias_at: tuple[ir.Node, int] | None
    groups: int
    alpha: float = 1.0
    beta: float = 1.0

    @property
    def name(self) -> str:
        return node_name(self.node)

    @property
    def input(self) -> ir.Value:
        """What meets the weights."""
        value = self.node.inputs[0 if self.rule.weight else 1]
        assert value is not None
        return value

    @property
    def own_bias(self) -> bool:
        """Whether the bias is a part of the node's output; if not, an Add brings it behind."""
        return self.bias_at is not None and self.bias_at[0] is self.node

    @property
    def given_bias(self) -> Array | None:
        """The bias that stands where nothing is corrected; None where the node has none."""
        has = self.own_bias and self.bias_at is not None and self.bias_at[1] < len(self.node.inputs)
        return self.bias if has else None

    @property
    def channel_axis(self) -> int | None:
        """The axis of ``weights`` that the output channels run along; None where there is one channel."""
        if self.weights.ndim == 1:
            return None
        if self.node.op_type == "Conv":
            return 0
        if self.node.op_type == "Gemm":
            return 0 if int_of(self.node, "transB", 0) else 1
        if self.node.op_type == "ConvTranspose":
            return 1
        return self.weights.ndim - (1 if self.rule.weight else 2)

    @property
    def has_columns(self) -> bool:
        """Whether :meth:`rows` knows what meets each column; without, weights are rounded to nearest."""
        return self.node.op_type in ("Conv", "Gemm") or (
            self.node.op_type == "MatMul" and self.rule.weight == 1 and self.weights.ndim == 2
        )

    @property
    def depthwise(self) -> bool:
        """One input and one output channel in each of several groups: kernels that add in int32."""
        return 1 < self.groups == len(self.weights) and self.weights.shape[1] == 1

    @property
    def places(self) -> int:
        """Places of a Conv's kernel, else 1."""
        return int(np.prod(self.weights.shape[2:])) if self.node.op_type == "Conv" else 1

    def pairs(self) -> Array:
        """The columns that meet in a kernel that adds in int16, as ``pairs_of`` gives them; none for kernels
        that do not."""
        if self.depthwise or self.node.op_type == "ConvTranspose":
            return np.zeros((0, 2), np.int64)
        columns = self.matrix().shape[2]
        if self.node.op_type != "MatMul":
            return pairs_of(columns // self.places, self.places)
        inner = self.weights.shape[-2 if self.rule.weight and self.weights.ndim > 1 else -1]
        first = np.arange(0, columns, inner)[:, None, None]
        each: Array = (first + pairs_of(inner, 1)).reshape(-1, 2)
        return each

    def matrix(self) -> Array:
        """float64 [groups, outputs, columns]: a column is an input channel of the group and a place."""
        if self.channel_axis is None:
            return self.weights.reshape(1, 1, -1).astype(np.float64)
        first = np.moveaxis(self.weights, self.channel_axis, 0)
        return first.reshape(self.groups, len(first) // self.groups, -1).astype(np.float64)

    def from_matrix(self, matrix: Array) -> Array:
        """What :meth:`matrix` reads, in the node's own layout."""
        if self.channel_axis is None:
            return matrix.reshape(-1)
        shape = np.moveaxis(self.weights, self.channel_axis, 0).shape
        return np.ascontiguousarray(np.moveaxis(matrix.reshape(shape), 0, self.channel_axis))

    def outputs(self, y: Array) -> Array:
        """The node's output as [output channels, positions]."""
        axis = 1 if self.node.op_type in ("Conv", "ConvTranspose") else y.ndim - 1
        first = np.moveaxis(y, axis, 0)
        return first.reshape(len(first), -1)

    def by_channel(self, x: Array) -> Array:
        """The node's input as [input channels, everything else], for :meth:`rows`."""
        if self.node.op_type == "Conv":
            return np.moveaxis(x, 1, 0).reshape(x.shape[1], -1)
        if self.node.op_type == "Gemm" and int_of(self.node, "transA", 0):
            return x
        return x.reshape(-1, x.shape[-1]).T

    def rows(self, x: Array, zero_point: Array, positions: Array) -> Array:
        """What meets the columns at some positions.

        Args:
            x: Of :meth:`by_channel`, integers or floats.
            zero_point: [] or [input channels]: what stands for zero, also outside of the input.
            positions: int64 [P], counted through the output without its channels.

        Returns:
            float32 [groups, columns, P]: x less its zero point.
        """
        if self.node.op_type != "Conv":
            return (np.take(x, positions, 1).astype(np.float32) - zero_point.reshape(-1, 1))[None]
        at, inside = self._taps(positions)
        taken = np.take(x, at.ravel(), 1).astype(np.float32)
        taken -= zero_point.reshape(-1, 1).astype(np.float32)
        taken = taken.reshape(len(x), *at.shape)
        if not inside.all():
            taken *= inside
        return taken.reshape(self.groups, -1, len(positions))

    def _taps(self, positions: Array) -> tuple[Array, Array]:
        """Where the kernel's places lie in the input: int64 [places, P], and whether they lie inside."""
        kernel = self.weights.shape[2:]
        rank = len(kernel)
        source, result = static_dims(self.node.inputs[0]), static_dims(self.node.outputs[0])
        assert source is not None
        assert result is not None
        strides = ints_of(self.node, "strides", [1] * rank)
        dilations = ints_of(self.node, "dilations", [1] * rank)
        pads = ints_of(self.node, "pads", [0] * 2 * rank)
        batch, *place = np.unravel_index(positions, (result[0], *result[2:]))
        offsets = np.indices(kernel).reshape(rank, -1)
        at = np.broadcast_to(batch, (offsets.shape[1], len(positions)))
        inside = np.ones(at.shape, bool)
        for axis, size in enumerate(source[2:]):
            begin = place[axis] * strides[axis] - pads[axis]
            where = begin[None, :] + offsets[axis][:, None] * dilations[axis]
            inside &= (where >= 0) & (where < size)
            at = at * size + np.clip(where, 0, size - 1)
        return at, inside


def product_of(node: ir.Node, rule: OpRule | None) -> WeightMatrix | None:
    """The node as a product, or None where it has no constant weights to be stored."""
    if rule is None or rule.weight is None:
        return None
    weights = array_of(input_of(node, rule.weight))
    if weights is None:
        return None
    if weights.ndim == 1:  # of a MatMul: its one output channel has no axis
        return WeightMatrix(node, rule, weights, None, None, 1)
    alpha, beta = (
        (float_of(node, k, 1.0) for k in ("alpha", "beta")) if node.op_type == "Gemm" else (1.0, 1.0)
    )
    bias, bias_at = _bias(node, rule) if beta else (None, None)
    groups = int_of(node, "group", 1) if node.op_type == "Conv" else 1
    return WeightMatrix(node, rule, weights, bias, bias_at, groups, alpha, beta)


def _bias(node: ir.Node, rule: OpRule) -> tuple[Array | None, tuple[ir.Node, int] | None]:
    channels = output_channels(node)
    if rule.bias is not None:
        value = input_of(node, rule.bias)
        if value is None:
            return np.zeros(channels, np.float32), (node, rule.bias)
        constant = array_of(value)
        if constant is None or constant.size != channels:
            return None, None
        return constant.reshape(-1).astype(np.float32), (node, rule.bias)
    reader = only_user(node.outputs[0])
    if reader is not None and reader.op_type == "Add" and not reader.domain:
        for place, other in enumerate(reader.inputs):
            constant = array_of(other)
            if other is not node.outputs[0] and constant is not None and constant.size == channels:
                return constant.reshape(-1).astype(np.float32), (reader, place)
    return None, None
