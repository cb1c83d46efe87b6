"""A layer with weights as a matrix product (im2col): which input values are multiplied by which weight
column.

Rounding works on matrices ``[groups, outputs, columns]``. This file converts weights from and to the node's
layout, and reads the inputs of each column at given positions of the output. A position covers all channels:
a pixel of a Conv, a row of a Gemm or MatMul.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.rewriting import array_of, float_of, input_of, int_of, ints_of, only_consumer
from edgekit.compiler.quantize.placement.kernels import node_name, output_channels
from edgekit.compiler.quantize.weights.rounding import pairs_of
from edgekit.target.quant_rules import OpRule
from edgekit.tensor_spec import Array


@dataclass(frozen=True, eq=False)
class WeightMatrix:
    """Node with constant weights.

    Attributes:
        node: Conv, ConvTranspose, Gemm or MatMul.
        weights: float32, in the node's own layout.
        bias: float32 [output channels], zeros if the node has none but could have; None if it cannot have
            one.
        bias_input: (node, input index) of the bias: the node itself, or the Add after it.
        groups: Groups of a Conv, else 1.
        alpha: Factor of the product of a Gemm, else 1.
        beta: Factor of the bias of a Gemm, else 1.
    """

    node: ir.Node
    rule: OpRule
    weights: Array
    bias: Array | None
    bias_input: tuple[ir.Node, int] | None
    groups: int
    alpha: float = 1.0
    beta: float = 1.0

    @property
    def name(self) -> str:
        return node_name(self.node)

    @property
    def input(self) -> ir.Value:
        value = self.node.inputs[0 if self.rule.weight else 1]
        assert value is not None
        return value

    @property
    def own_bias(self) -> bool:
        """Return whether the node itself adds the bias; if not, the Add after it does."""
        return self.bias_input is not None and self.bias_input[0] is self.node

    @property
    def original_bias(self) -> Array | None:
        has = self.own_bias and self.bias_input is not None and self.bias_input[1] < len(self.node.inputs)
        return self.bias if has else None

    @property
    def channel_axis(self) -> int | None:
        """Return the output channel axis of ``weights``; None if there is one channel."""
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
        """Return whether :meth:`rows` supports this node; if not, its weights are rounded to nearest."""
        return self.node.op_type in ("Conv", "Gemm") or (
            self.node.op_type == "MatMul" and self.rule.weight == 1 and self.weights.ndim == 2
        )

    @property
    def depthwise(self) -> bool:
        """Return whether several groups have one input and output channel each; kernels add in int32."""
        return 1 < self.groups == len(self.weights) and self.weights.shape[1] == 1

    @property
    def kernel_size(self) -> int:
        """Return the number of elements of a Conv's kernel (kh * kw), else 1."""
        return int(np.prod(self.weights.shape[2:])) if self.node.op_type == "Conv" else 1

    def pairs(self) -> Array:
        """Return the pairs of columns that a kernel adds in int16 (``pairs_of``); empty for other kernels."""
        if self.depthwise or self.node.op_type == "ConvTranspose":
            return np.zeros((0, 2), np.int64)
        columns = self.matrix().shape[2]
        if self.node.op_type != "MatMul":
            return pairs_of(columns // self.kernel_size, self.kernel_size)
        inner = self.weights.shape[-2 if self.rule.weight and self.weights.ndim > 1 else -1]
        first = np.arange(0, columns, inner)[:, None, None]
        column_pairs: Array = (first + pairs_of(inner, 1)).reshape(-1, 2)
        return column_pairs

    def matrix(self) -> Array:
        """Return the weights as float64 [groups, outputs, columns]: a column is an input channel of the group
        and a kernel element."""
        if self.channel_axis is None:
            return self.weights.reshape(1, 1, -1).astype(np.float64)
        first = np.moveaxis(self.weights, self.channel_axis, 0)
        return first.reshape(self.groups, len(first) // self.groups, -1).astype(np.float64)

    def from_matrix(self, matrix: Array) -> Array:
        """Convert a :meth:`matrix` back to weights in the node's layout."""
        if self.channel_axis is None:
            return matrix.reshape(-1)
        shape = np.moveaxis(self.weights, self.channel_axis, 0).shape
        return np.ascontiguousarray(np.moveaxis(matrix.reshape(shape), 0, self.channel_axis))

    def outputs(self, y: Array) -> Array:
        """Reshape the node's output to [output channels, positions]."""
        axis = 1 if self.node.op_type in ("Conv", "ConvTranspose") else y.ndim - 1
        first = np.moveaxis(y, axis, 0)
        return first.reshape(len(first), -1)

    def by_channel(self, x: Array) -> Array:
        """Reshape the node's input to [input channels, everything else], for :meth:`rows`."""
        if self.node.op_type == "Conv":
            return np.moveaxis(x, 1, 0).reshape(x.shape[1], -1)
        if self.node.op_type == "Gemm" and int_of(self.node, "transA", 0):
            return x
        return x.reshape(-1, x.shape[-1]).T

    def rows(self, x: Array, zero_point: Array, positions: Array) -> Array:
        """Return the inputs of each column at some positions.

        Args:
            x: Output of :meth:`by_channel`, integers or floats.
            zero_point: [] or [input channels]; also the value of padding.
            positions: int64 [P]: flat indices into the output without its channels.

        Returns:
            float32 [groups, columns, P]: x minus its zero point.
        """
        if self.node.op_type != "Conv":
            return (np.take(x, positions, 1).astype(np.float32) - zero_point.reshape(-1, 1))[None]
        indices, in_bounds = self._taps(positions)
        gathered = np.take(x, indices.ravel(), 1).astype(np.float32)
        gathered -= zero_point.reshape(-1, 1).astype(np.float32)
        gathered = gathered.reshape(len(x), *indices.shape)
        if not in_bounds.all():
            gathered *= in_bounds
        return gathered.reshape(self.groups, -1, len(positions))

    def _taps(self, positions: Array) -> tuple[Array, Array]:
        """Return the kernel elements' flat input indices, int64 [elements, P], and which are in bounds."""
        kernel = self.weights.shape[2:]
        rank = len(kernel)
        source, result = static_dims(self.node.inputs[0]), static_dims(self.node.outputs[0])
        assert source is not None
        assert result is not None
        strides = ints_of(self.node, "strides", [1] * rank)
        dilations = ints_of(self.node, "dilations", [1] * rank)
        pads = ints_of(self.node, "pads", [0] * 2 * rank)
        batch, *index = np.unravel_index(positions, (result[0], *result[2:]))
        offsets = np.indices(kernel).reshape(rank, -1)
        indices = np.broadcast_to(batch, (offsets.shape[1], len(positions)))
        in_bounds = np.ones(indices.shape, bool)
        for axis, size in enumerate(source[2:]):
            begin = index[axis] * strides[axis] - pads[axis]
            coordinates = begin[None, :] + offsets[axis][:, None] * dilations[axis]
            in_bounds &= (coordinates >= 0) & (coordinates < size)
            indices = indices * size + np.clip(coordinates, 0, size - 1)
        return indices, in_bounds


def product_of(node: ir.Node, rule: OpRule | None) -> WeightMatrix | None:
    """Return the node as a matrix product, or None if it has no constant weights to quantize."""
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
    bias, bias_input = _bias(node, rule) if beta else (None, None)
    groups = int_of(node, "group", 1) if node.op_type == "Conv" else 1
    return WeightMatrix(node, rule, weights, bias, bias_input, groups, alpha, beta)


def _bias(node: ir.Node, rule: OpRule) -> tuple[Array | None, tuple[ir.Node, int] | None]:
    channels = output_channels(node)
    if rule.bias is not None:
        value = input_of(node, rule.bias)
        if value is None:
            return np.zeros(channels, np.float32), (node, rule.bias)
        constant = array_of(value)
        if constant is None or not _is_of_channels(constant, node, channels):
            return None, None
        return constant.reshape(-1).astype(np.float32), (node, rule.bias)
    reader = only_consumer(node.outputs[0])
    if reader is not None and reader.op_type == "Add" and not reader.domain:
        for index, other in enumerate(reader.inputs):
            constant = array_of(other)
            if other is node.outputs[0] or constant is None:
                continue
            if _is_of_channels(constant, node, channels):
                return constant.reshape(-1).astype(np.float32), (reader, index)
    return None, None


def _is_of_channels(constant: Array, node: ir.Node, channels: int) -> bool:
    """Return whether a constant has a value for each output channel, even with as many rows as channels."""
    if constant.size != channels or node.op_type not in ("Gemm", "MatMul"):
        return bool(constant.size == channels)
    return constant.ndim == 0 or constant.shape[-1] == channels
