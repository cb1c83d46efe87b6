"""Channels of outputs: which values of an output the same channel of a layer computes.

    Conv [1, 7, 3, 3] -> Reshape [1, 7, 9] -> Transpose [1, 9, 7]      channel = index of the last axis
    Conv box  [1, 4, 9] \\
                          Concat [1, 7, 9] -> Sigmoid                  box 0 to 3, score 0 to 2
    Conv score [1, 3, 9] /

One layer may compute numbers of different size, e.g. millimetres and probabilities: int8 with one scale for
all of them makes constants of the small ones, at 34 dB over the whole output. So each channel is judged by
itself (channel_snr.py), wherever Reshape, Transpose or Concat has moved it.

Labels are computed as the values are: data movement is run on an array with the number of the channel in
place of each value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.channel_axis import CHANNELS_LIMIT, axis_of_producer
from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.rewriting import array_of, int_of, ints_of
from edgekit.compiler.model.shape_inference import constant_tensor
from edgekit.tensor_spec import Array

MOVES = frozenset(
    {
        "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Reshape",
        "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
    }
)  # fmt: skip
BOUNDED = frozenset({"HardSigmoid", "Sigmoid"})
"""Elementwise operators whose results are scores from 0 to 1, whatever the size of their inputs. Those of
Tanh are not: a steering angle near 0 is as good as one near 1."""
ELEMENTWISE = BOUNDED | {
    "Abs", "Add", "BatchNormalization", "Cast", "Ceil", "Celu", "Clip", "Cos", "DequantizeLinear", "Div",
    "Dropout", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSwish", "Identity", "LeakyRelu", "Log", "Max",
    "Min", "Mish", "Mul", "Neg", "PRelu", "Pow", "QuantizeLinear", "QuickGelu", "Reciprocal", "Relu", "Round",
    "Selu", "Sin", "Softplus", "Softsign", "Sqrt", "Sub", "Swish", "Tanh", "ThresholdedRelu",
}  # fmt: skip
REPEATED_SHARE = 0.75
"""Least share of the channels along an axis of positions that come more than once. A level of one position
has one that does not; box and scores of a Softmax have one that does."""
JOINED_LIMIT = 4
"""At most so many operators of two computed values are followed, one after the other: boxes are decoded with
three. Beyond is a residual stream."""


@dataclass(frozen=True, eq=False)
class OutputChannels:
    """Channels of one output.

    Attributes:
        labels: int64 [values of the output]: the channel of each, from 0. None if the shape is not known.
        units: int64 [channels]: channels with the same number have one unit, e.g. all scores of a Sigmoid.
        bounded: bool [channels]: whether the unit is that of a bounded activation.
        ranks: bool [channels]: whether the channel is the value by which a TopK ordered.
        rows: Axis along which a TopK or NonMaxSuppression orders rows, or None.
    """

    labels: Array | None
    units: Array
    bounded: Array
    ranks: Array
    rows: int | None


Channels = Mapping[str, OutputChannels]


def find_channels(graph: ir.Graph) -> dict[str, OutputChannels]:
    """Return the channels of each float output that has more than one, and of each output that has rows."""
    tracer = _Tracer(graph)
    channels = {str(value.name): _channels_of(value, tracer) for value in graph.outputs}
    return {name: one for name, one in channels.items() if len(one.units) > 1 or one.rows is not None}


def columns_alone(count: int) -> OutputChannels:
    """Return so many channels of which nothing is known."""
    numbers = np.arange(count)
    return OutputChannels(None, numbers, numbers < 0, numbers < 0, None)


def _channels_of(value: ir.Value, tracer: _Tracer) -> OutputChannels:
    is_float = value.dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE)
    labels = tracer.labels(value) if is_float else None
    if labels is None:
        return replace(columns_alone(0), rows=_row_axis(value, None))
    used, indices = np.unique(labels, return_inverse=True)
    channels = indices.reshape(labels.shape)
    bounded, ranks = (np.isin(used, list(names)) for names in (tracer.bounded, tracer.ranks))
    units = _numbered([tracer.units[label] for label in used.tolist()])
    same = np.arange(len(used))
    for axis in range(channels.ndim):
        for one, other in _same_channels(channels, axis):
            same[same == same[other]] = same[one]
            if bounded[one] and bounded[other]:
                units[units == units[other]] = units[one]
    first, channels = np.unique(same, return_inverse=True)[0], _numbered(same)[channels]
    bounded = np.array([bounded[same == one].all() for one in first], bool)
    return OutputChannels(channels.ravel(), units[first], bounded, ranks[first], _row_axis(value, channels))


def _same_channels(channels: Array, axis: int) -> Sequence[tuple[int, int]]:
    """Return pairs of channels that are the same one of several levels or anchors: along an axis that joins
    them with positions, where nearly all come more than once."""
    lines = np.moveaxis(channels, axis, 0).reshape(channels.shape[axis], -1)
    counts = np.unique(lines[:, 0], return_counts=True)[1] if lines.size else np.zeros(0)
    if len(counts) < 2 or (counts > 1).mean() < REPEATED_SHARE:
        return []
    firsts = np.broadcast_to(lines[:1], lines.shape)
    pairs = np.unique(np.stack([firsts.ravel(), lines.ravel()]), axis=1)
    return [(one, other) for one, other in pairs.T.tolist() if one != other]


def _numbered(labels: Sequence[int] | Array) -> Array:
    numbers: Array = np.unique(np.asarray(labels, np.int64), return_inverse=True)[1]
    return numbers


def _row_axis(value: ir.Value, labels: Array | None) -> int | None:
    """Return the axis of an output that has the length of a TopK before it, or the open one after a
    NonMaxSuppression. The channels are the same along it."""
    if value.shape is None:
        return None
    lengths: set[object] = set()
    for node in _ancestors(value):
        if node.op_type == "TopK":
            dims = static_dims(node.outputs[1])
            lengths.add(dims[int_of(node, "axis", -1)] if dims else None)
        elif node.op_type == "NonMaxSuppression":
            lengths.add("open")
    lengths -= {None, 1}
    sizes = ["open" if not isinstance(dim, int) else dim for dim in value.shape]
    axes = [axis for axis, length in enumerate(sizes) if length in lengths]
    alike = [axis for axis in axes if labels is None or (labels == labels.take([0], axis)).all()]
    return next(iter(alike), None)


def _ancestors(value: ir.Value) -> Iterator[ir.Node]:
    pending, visited = [value.producer()], set()
    while pending:
        node = pending.pop()
        if node is not None and id(node) not in visited:
            visited.add(id(node))
            yield node
            pending += [one.producer() for one in node.inputs if one is not None]


class _Tracer:
    """Labels of values.

    Attributes:
        units: Unit of each label.
        bounded: Labels whose unit is that of a bounded activation.
        ranks: Labels of values by which a TopK orders.
    """

    def __init__(self, graph: ir.Graph) -> None:
        self.units: list[int] = []
        self.bounded: set[int] = set()
        self.ranks: set[int] = set()
        self._opsets = {domain: version for domain, version in graph.opset_imports.items() if version}
        self._known: dict[ir.Value, Array | None] = {}

    def labels(self, value: ir.Value, joined: int = 0) -> Array | None:
        """Return the label of each element of a value, in its shape; None if that is not known."""
        if value not in self._known:
            dims = static_dims(value)
            self._known[value] = None if dims is None else self._traced(value, dims, joined)
        return self._known[value]

    def _traced(self, value: ir.Value, dims: Sequence[int], joined: int) -> Array:
        node = value.producer()
        if node is None:
            return self._one(dims)
        computed = [one for one in dict.fromkeys(node.inputs) if one is not None and _constant(one) is None]
        if node.op_type in MOVES:
            movement = self._moved(node, value, joined)
            return self._one(dims) if movement is None or movement.shape != tuple(dims) else movement
        if node.op_type in ELEMENTWISE and computed:
            return self._elementwise(node, computed, dims, joined)
        if node.op_type.startswith("Reduce") and computed:
            return self._reduced(node, computed[0], dims, joined)
        if node.op_type == "TopK" and node.outputs[0] is value:
            labels = self._one(dims)
            self.ranks.update(np.unique(labels).tolist())
            return labels
        axis = axis_of_producer(value)
        if axis is None or dims[axis] > CHANNELS_LIMIT:
            return self._one(dims)
        shape = [1] * len(dims)
        shape[axis] = dims[axis]
        return np.broadcast_to(self._new(dims[axis]).reshape(shape), dims)

    def _elementwise(
        self, node: ir.Node, computed: Sequence[ir.Value], dims: Sequence[int], joined: int
    ) -> Array:
        joined += len(computed) > 1
        if joined > JOINED_LIMIT:
            return self._one(dims)
        labels = [self.labels(one, joined) for one in computed]
        shaped = [np.broadcast_to(one, dims) for one in labels if one is not None]
        if not shaped:
            return self._one(dims)
        bounds = node.op_type in BOUNDED
        return self._derived(shaped, bounds) if bounds or len(shaped) > 1 else shaped[0]

    def _derived(self, labels: Sequence[Array], bounds: bool) -> Array:
        """Return a label for each combination of labels. All have one unit if the operator ``bounds`` them,
        else those whose operands have."""
        pairs, indices = np.unique(np.stack([one.ravel() for one in labels]), axis=1, return_inverse=True)
        numbers = self._new(pairs.shape[1])
        unit_of: dict[tuple[int, ...], int] = {}
        for number, operands in zip(numbers.tolist(), pairs.T.tolist(), strict=True):
            if bounds or self.bounded.issuperset(operands):
                self.bounded.add(number)
                key = () if bounds else tuple(self.units[one] for one in operands)
                self.units[number] = unit_of.setdefault(key, number)
        return numbers[indices.ravel()].reshape(labels[0].shape)

    def _reduced(self, node: ir.Node, read: ir.Value, dims: Sequence[int], joined: int) -> Array:
        labels = self.labels(read, joined)
        if labels is None:
            return self._one(dims)
        constant = _constant(node.inputs[1]) if len(node.inputs) > 1 else None
        axes = ints_of(node, "axes", range(labels.ndim)) if constant is None else constant.tolist()
        rest: Array = labels.min(tuple(axes), keepdims=True)
        return rest.reshape(dims) if rest.size == np.prod(dims, dtype=np.int64) else self._one(dims)

    def _moved(self, node: ir.Node, value: ir.Value, joined: int) -> Array | None:
        from onnx.reference import ReferenceEvaluator

        feeds: dict[str, Array] = {}
        for index, one in enumerate(node.inputs):
            if one is None:
                continue
            constant = _constant(one)
            is_data = index == 0 or node.op_type == "Concat"
            if is_data:
                labels = self.labels(one, joined) if constant is None else self._one(constant.shape)
            elif constant is None:  # the indices of rows, which are all alike
                labels = np.zeros(static_dims(one) or (), np.int64)
            else:
                labels = constant
            if labels is None:
                return None
            feeds[str(one.name)] = np.ascontiguousarray(labels)
        try:
            results = ReferenceEvaluator(ir.to_proto(node), opsets=self._opsets).run(None, feeds)
        except Exception:  # any operator's own error: its output counts as one channel
            return None
        assert isinstance(results, list)
        return np.asarray(results[list(node.outputs).index(value)], np.int64)

    def _new(self, count: int) -> Array:
        first = len(self.units)
        self.units.extend(range(first, first + count))
        return np.arange(first, first + count)

    def _one(self, dims: Sequence[int]) -> Array:
        return np.broadcast_to(self._new(1), dims)


def _constant(value: ir.Value | None) -> Array | None:
    node = value.producer() if value is not None else None
    if node is not None and node.op_type == "Constant" and not node.domain:
        tensor = constant_tensor(node)
        return None if tensor is None else tensor.numpy()
    return array_of(value)
