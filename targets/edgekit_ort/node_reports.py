"""Node reports of ``model.onnx``: times by ONNX Runtime's own profiler, values with nothing optimized."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgekit.target.node_reports import (
    NodeReports,
    NodeTime,
    NodeTimes,
    NodeValue,
    quiet_times,
    without_endings,
)
from edgekit.tensors import Array, Json, TensorSpec
from edgekit_ort.run import MODEL_FILE, open_session

KERNEL = "_kernel_time"
"""How the profiler ends the name of a node's own event."""
INTO_BLOCKS, OUT_OF_BLOCKS = "ReorderInput", "ReorderOutput"
"""How the names of changes of layout begin (nchwc_transformer.cc)."""
RUN = "model_run"
"""The profiler's name of a run."""


def node_times(
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    feeds: Mapping[str, Array],
    threads: int,
    runs: int,
) -> NodeTimes:
    """The nodes that run once ONNX Runtime has merged what it merges, in their order.

    Raises:
        EngineError: ONNX Runtime refused the model.
    """
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        session = open_session(
            files[MODEL_FILE],
            threads,
            keep_float_regions=bool(options.get("float_islands")),
            widened_weights=bool(options.get("widened_weights")),
            profile_into=Path(folder) / "profile",
        )
        for _ in range(1 + runs):
            session.run(None, dict(feeds))
        events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    ops: dict[str, str] = {}
    taken: list[tuple[float, dict[str, float]]] = []
    nodes: dict[str, float] = {}
    for event in sorted(events, key=_end):
        if event.get("cat") == "Node" and event["name"].endswith(KERNEL):
            name = event["name"].removesuffix(KERNEL)
            ops[name] = event["args"]["op_name"]
            nodes[name] = nodes.get(name, 0.0) + event["dur"] / 1000
        elif event.get("name") == RUN:
            taken.append((event["dur"] / 1000, nodes))
            nodes = {}
    run_ms, means = quiet_times(taken[1:])
    merged = _merged(files[MODEL_FILE], {name: ops[name] for name in means})
    nodes_ms = (NodeTime(merged.get(n, (n,))[0], ops[n], ms, merged.get(n, ())) for n, ms in means.items())
    return NodeTimes(run_ms, tuple(nodes_ms))


def _end(event: Mapping[str, Any]) -> int:
    """When it ended, in us of the profile."""
    return int(event.get("ts", 0)) + int(event.get("dur", 0))


def _merged(path: Path, timed: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Timed node -> names of the file's nodes that it computes. Empty on a device, which has no onnx.

    ONNX Runtime names what it writes anew by a node or value that was there, with an ending: ``y_nchwc``
    computes y in its own layout, ``Mul_3/QuickGeluFusion/`` is that Mul and its Sigmoid. A node of the file
    that is not timed was merged into the one that reads it, if that one runs as another operator than the
    file says, else into what makes its first input. A change of layout belongs to the node that it is made
    for: the next one that runs, or the one before.
    """
    try:
        import onnx_ir as ir
    except ModuleNotFoundError:
        return {}
    graph = ir.load(path).graph
    by_name: dict[str, ir.Node] = {str(o.name): node for node in graph for o in node.outputs}
    by_name |= {str(node.name): node for node in graph if node.name}
    found: dict[str, list[ir.Node]] = {}
    runs_in: dict[ir.Node, str] = {}
    for name in timed:
        node = next((by_name[known] for known in without_endings(name) if known in by_name), None)
        if node is not None:
            found[name] = [node]
            runs_in.setdefault(node, name)
    for name, nodes in found.items():
        for node in nodes if nodes[0].op_type != timed[name] else ():  # grows as it goes
            makers = (value.producer() for value in node.inputs if value is not None)
            for maker in makers:
                if maker is not None and maker not in runs_in:
                    runs_in[maker] = name
                    nodes.append(maker)
    for node in graph:
        first = next((value.producer() for value in node.inputs if value is not None), None)
        if node not in runs_in and first in runs_in:
            runs_in[node] = runs_in[first]
            found[runs_in[node]].append(node)
    names = {name: tuple(str(node.name) for node in nodes if node.name) for name, nodes in found.items()}
    order = list(timed)
    for place, name in enumerate(order):
        if name.startswith((INTO_BLOCKS, OUT_OF_BLOCKS)) and name not in names:
            others = order[place + 1 :] if name.startswith(INTO_BLOCKS) else order[:place][::-1]
            names[name] = next((names[other] for other in others if names.get(other)), ())
    return {name: several for name, several in names.items() if several}


def node_values(
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    feeds: Mapping[str, Array],
) -> list[NodeValue]:
    """What each node makes.

    Raises:
        EngineError: ONNX Runtime refused the model.
    """
    import onnx_ir as ir  # here: a device has no onnx, and can report times

    from edgekit.model.reference import onnx_values

    return onnx_values(ir.load(files[MODEL_FILE]), feeds)


NODE_REPORTS = NodeReports(node_times=node_times, node_values=node_values)
