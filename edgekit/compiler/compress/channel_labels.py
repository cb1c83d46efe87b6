"""Labels of channels: which channels of which values must be removed together.

Every value has at most one labelled axis. Its labels are numbers, one for each index of that axis. Channels
that can only be removed together have labels that are tied (union-find): the two operands of an Add, the
channels of an attention head, the channels that DepthToSpace makes one of.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import onnx_ir as ir

from edgekit.tensor_spec import Array

Role = Literal["output", "input", "along"]


@dataclass(frozen=True, eq=False)
class Labels:
    """The labelled axis of a value.

    Attributes:
        ids: int64 [size of the axis].
    """

    axis: int
    ids: Array


@dataclass(frozen=True, eq=False)
class Use:
    """A constant with labels along one axis: it is cut with the channels.

    Attributes:
        index: Index of the constant among its inputs.
        axis: The labelled axis of the constant.
        ids: int64 [size of the axis].
        role: ``output``: rows of weights that make the channels. ``input``: columns of weights that are
            multiplied by them. ``along``: numbers for each channel, e.g. of a bias or a depthwise Conv.
    """

    node: ir.Node
    index: int
    axis: int
    ids: Array
    role: Role


@dataclass
class ChannelLabels:
    """The labels of a model's values, under construction.

    Attributes:
        labels: Labels of a value; values without a labelled axis are missing.
        uses: Constants that are cut with the channels, in the order of the nodes.
        closed: Labels whose channels cannot be removed.
    """

    labels: dict[ir.Value, Labels] = field(default_factory=dict)
    uses: list[Use] = field(default_factory=list)
    closed: set[int] = field(default_factory=set)
    _parents: list[int] = field(default_factory=list)

    def new(self, count: int) -> Array:
        """Create labels that are tied to no other: int64 [count]."""
        first = len(self._parents)
        self._parents.extend(range(first, first + count))
        return np.arange(first, first + count)

    def tie(self, a: Array, b: Array) -> None:
        """Tie labels element by element; the arrays have one shape."""
        for one, other in zip(a.ravel().tolist(), b.ravel().tolist(), strict=True):
            first, second = sorted((self._root(one), self._root(other)))
            self._parents[second] = first

    def tie_blocks(self, blocks: Array) -> Array:
        """Tie the labels of each row of [blocks, labels]; returns one label for each row."""
        for column in range(1, blocks.shape[1]):
            self.tie(blocks[:, 0], blocks[:, column])
        return blocks[:, 0]

    def close(self, *values: ir.Value | None) -> None:
        """Mark the channels of these values as not removable."""
        for value in values:
            if value is not None and value in self.labels:
                self.closed.update(self.labels[value].ids.tolist())

    def use(self, node: ir.Node, index: int, axis: int, ids: Array, role: Role) -> None:
        self.uses.append(Use(node, index, axis, ids, role))

    def roots(self, ids: Array) -> Array:
        """Return one label for each set of tied labels, in the shape of ``ids``: the lowest one of the
        set."""
        return np.array([self._root(one) for one in ids.ravel().tolist()], np.int64).reshape(ids.shape)

    def _root(self, label: int) -> int:
        while self._parents[label] != label:
            self._parents[label] = self._parents[self._parents[label]]
            label = self._parents[label]
        return label
