"""Reports on the nodes of an artifact: times and output values.

A target that supports this has a module with ``NODE_REPORTS = NodeReports(...)``, named by the ``ENGINE`` of
its ``run.py``. Names of nodes are those of the artifact, which keeps the source model's where nothing was
merged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from edgekit.tensors import Array, Json, TensorSpec


@dataclass(frozen=True)
class NodeTime:
    """The time of one node within a run of the whole model, in ms: the minimum of several runs."""

    node: str
    op: str
    ms: float


@dataclass(frozen=True)
class NodeValue:
    """A float value, dequantized where it is stored as integers.

    Attributes:
        node: Name of the node that computes it.
        op: Its operator, as the artifact's format calls it.
        value: Its own name, by which variants are compared.
        inputs: Names of the values that the node reads.
        array: The value, of any float dtype.
    """

    node: str
    op: str
    value: str
    inputs: tuple[str, ...]
    array: Array


class NodeReports(NamedTuple):
    """The node reports that a target supports; each may be None.

    Attributes:
        node_times: ``(files, inputs, outputs, options, feeds, threads, runs)``: the nodes that its engine
            runs here, with their times.
        node_values: ``(files, inputs, outputs, options, feeds)``: the float outputs of the nodes.
    """

    node_times: (
        Callable[
            [
                Mapping[str, Path],
                Sequence[TensorSpec],
                Sequence[TensorSpec],
                Mapping[str, Json],
                Mapping[str, Array],
                int,
                int,
            ],
            list[NodeTime],
        ]
        | None
    ) = None
    node_values: (
        Callable[
            [
                Mapping[str, Path],
                Sequence[TensorSpec],
                Sequence[TensorSpec],
                Mapping[str, Json],
                Mapping[str, Array],
            ],
            list[NodeValue],
        ]
        | None
    ) = None
