"""What is seen inside an artifact, node by node: its time, and the values that it makes.

A target that can tell has a module ``node_reports.py`` with one or both of these functions:

    node_times(files, inputs, outputs, options, feeds, threads, runs) -> list[NodeTime]    by its engine here
    node_values(files, inputs, outputs, options, feeds) -> list[NodeValue]                 floats only

Names are those of the artifact, which keeps the source model's where nothing was merged.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.tensors import Array


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
