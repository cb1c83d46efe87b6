"""Reports on the nodes of an artifact: times and output values.

A target that supports this has a module with ``NODE_REPORTS = NodeReports(...)``, named by the ``ENGINE`` of
its ``run.py``. Names of nodes are those of the artifact, which keeps the source model's if nothing was
merged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from edgekit.tensor_spec import Array, Json, TensorSpec

Files = Mapping[str, Path]
Specs = Sequence[TensorSpec]
Options = Mapping[str, Json]
Feeds = Mapping[str, Array]

ENDINGS = [re.compile(f"(?:{ending})$") for ending in (r"_token_\d+", r"_[A-Za-z]+", r"[/:.]+[^/:.]*")]
QUIET_PART = 4
"""The quickest 1/QUIET_PART of the runs counts."""


@dataclass(frozen=True)
class NodeTime:
    """The time of one node within a run of the whole model.

    Attributes:
        ms: Milliseconds, over the quickest runs (``quiet_times``).
        nodes: Names of the artifact's nodes that it computes, or of their values, if the engine has merged
            several; () for the one that it is named by.
        serves: Names of the nodes that it serves, if the engine has inserted it, e.g. to change a layout.
    """

    node: str
    op: str
    ms: float
    nodes: tuple[str, ...] = ()
    serves: tuple[str, ...] = ()


@dataclass(frozen=True)
class NodeTimes:
    """Time of a run by node.

    Attributes:
        run_ms: Time of the whole run in ms, measured in the same runs or between them. It is the sum of the
            nodes' times, plus what the engine does outside of them.
        parts: Measured parts of the run outside of nodes: (name, ms), e.g. ``arrays in and out``.
        how: Note on the measurement, as the end of a sentence; "" for an engine's own profiler.
    """

    run_ms: float
    nodes: tuple[NodeTime, ...]
    how: str = ""
    parts: tuple[tuple[str, float], ...] = ()


def without_endings(name: str) -> Iterator[str]:
    """Yield the name, then the rest of it as one ending after the other is removed. An engine that rewrites
    nodes derives the new names from the nodes that they replace. A number is an ending only if it counts
    copies.

    >>> list(without_endings("Conv_41/WithoutBiases"))
    ['Conv_41/WithoutBiases', 'Conv_41']
    >>> list(without_endings("onnx::Conv_7_nchwc")), list(without_endings("y_token_5"))
    (['onnx::Conv_7_nchwc', 'onnx::Conv_7', 'onnx'], ['y_token_5', 'y'])
    """
    while name:
        yield name
        name = name[: max((match.start() for ending in ENDINGS if (match := ending.search(name))), default=0)]


def quiet_times(runs: Sequence[tuple[float, Mapping[str, float]]]) -> tuple[float, dict[str, float]]:
    """Return the mean time of a run and of each node in it, over the quickest quarter of the runs.

    Not each node's own minimum: those are of different runs, and sum to less than any run takes.

    Args:
        runs: For each run its time and node -> time, all in ms.
    """
    quick = sorted(runs, key=lambda run: run[0])[: max(1, len(runs) // QUIET_PART)]
    names = dict.fromkeys(name for _, nodes in quick for name in nodes)
    means = {name: sum(nodes.get(name, 0.0) for _, nodes in quick) / len(quick) for name in names}
    return sum(run_ms for run_ms, _ in quick) / len(quick), means


def less_overhead(times: Sequence[float], total: float) -> float:
    """Return what to take off each time, none below 0, so that they sum to ``total``; 0 if they sum to less.

    >>> less_overhead([5.0, 3.0, 0.5], 6.0)
    1.0
    """
    largest = sorted(times, reverse=True)
    for count in range(len(largest), 0, -1):
        share = (sum(largest[:count]) - total) / count
        if share <= largest[count - 1]:
            return max(share, 0.0)
    return 0.0


@dataclass(frozen=True)
class NodeValue:
    """A float value, dequantized if it is stored as integers.

    Attributes:
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
            runs here, with their times, and what the whole takes.
        node_values: ``(files, inputs, outputs, options, feeds)``: the float outputs of the nodes.
        on_accelerators: Whether ``node_values`` runs the variant on the accelerator that its options name.
    """

    node_times: Callable[[Files, Specs, Specs, Options, Feeds, int, int], NodeTimes] | None = None
    node_values: Callable[[Files, Specs, Specs, Options, Feeds], list[NodeValue]] | None = None
    on_accelerators: bool = False
