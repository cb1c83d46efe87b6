"""What is seen inside an artifact, node by node: its time, and the values that it makes.

A target that can tell has a module with ``NODE_REPORTS = NodeReports(...)``, which the ``ENGINE`` of its
``run.py`` names. Names of nodes are those of the artifact, which keeps the source model's where nothing was
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
    """The time of one node in one run of the whole: the least of several runs, in ms."""

    node: str
    op: str
    ms: float


@dataclass(frozen=True)
class NodeValue:
    """A float value, dequantized where it is stored as integers.

    Attributes:
        node: Name of the node that makes it.
        op: Its operator, as the artifact's format calls it.
        value: Its own name: what variants are compared by.
        inputs: Names of the values that the node reads.
        array: What it is, of any float dtype.
    """

    node: str
    op: str
    value: str
    inputs: tuple[str, ...]
    array: Array


class NodeReports(NamedTuple):
    """What a target can tell of the nodes of an artifact; each part may be None.

    Attributes:
        node_times: ``(files, inputs, outputs, options, feeds, threads, runs)``: the nodes that its engine
            runs here, with their times.
        node_values: ``(files, inputs, outputs, options, feeds)``: the float values that the nodes make.
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
