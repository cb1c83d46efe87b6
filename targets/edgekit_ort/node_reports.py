"""Node reports of ``model.onnx``: times by ONNX Runtime's own profiler, values with nothing optimized."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgekit.target.node_reports import (
    NodeReports,
    NodeTime,
    NodeTimes,
    NodeValue,
    less_overhead,
    quiet_times,
    without_endings,
)
from edgekit.target.registry import ACCELERATOR
from edgekit.tensor_spec import Array, Json, TensorSpec
from edgekit_ort.accelerators import run_on
from edgekit_ort.device.placement import KERNEL
from edgekit_ort.run import MODEL_FILE, open_session

INTO_BLOCKS, OUT_OF_BLOCKS = "ReorderInput", "ReorderOutput"
"""How the names of changes of layout begin (nchwc_transformer.cc)."""
RUN, EXECUTE = "model_run", "SequentialExecutor::Execute"
"""The profiler's names of a run, and of the part of it that runs the nodes."""
IN_AND_OUT = "arrays in and out"
"""What a call takes beyond EXECUTE: NumPy arrays to and from the session's values."""
PROFILER_MS = 0.015
"""The most that the profiler takes for a node: 9 to 12 us on an x86-64 core of 2.8 GHz with nothing else to
do (48 nodes of a network of .3 ms, 53 of one of 9.4 ms)."""
SETTINGS = {
    "float_islands": "keep_float_regions",
    "widened_weights": "widened_weights",
    "wide_sums": "wide_sums",
}
"""Those of a variant's options that change the session -> the argument of ``open_session``."""
BLOCKS = 4
"""Runs with and without the profiler take turns in so many blocks; one by one they would empty each other's
caches."""


def node_times(
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    feeds: Mapping[str, Array],
    threads: int,
    runs: int,
) -> NodeTimes:
    """Measure the nodes that run after ONNX Runtime's fusions, in their order.

    Its profiler slows a run by some 10 us per node, within the nodes' own times too: a network of .3 ms takes
    .7. So runs without the profiler alternate with profiled runs. A node's time lasts until the next node
    begins, less its share of the difference. The share is equal for all nodes, as the profiler's work hardly
    depends on the node, up to PROFILER_MS. Any further difference, from other work of the machine, is
    distributed in proportion.

    Raises:
        EngineError: ONNX Runtime refused the model.
    """
    path = files[MODEL_FILE]
    settings: dict[str, Any] = {argument: bool(options.get(name)) for name, argument in SETTINGS.items()}
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        profile_path = Path(folder) / "profile"
        profiled = open_session(path, threads, profile_into=profile_path, **settings)
        bare = open_session(path, threads, **settings)
        with_it: list[float] = []
        without: list[float] = []
        for _ in range(BLOCKS):
            for session, times_ms in ((profiled, with_it), (bare, without)):
                for _ in range(1 + runs // BLOCKS):
                    started = time.perf_counter()
                    session.run(None, dict(feeds))
                    times_ms.append(1000 * (time.perf_counter() - started))
        events = json.loads(Path(profiled.end_profiling()).read_text("utf-8"))
    ops, per_run = _of_each_run(events)
    run_ms, _ = quiet_times([(ms, {}) for ms in without])
    _, means = quiet_times(
        [
            (ms, {**nodes, IN_AND_OUT: ms - execute})
            for ms, (execute, nodes) in zip(with_it, per_run, strict=True)
        ]
    )
    outside = min(means.pop(IN_AND_OUT), run_ms)
    off = min(less_overhead(list(means.values()), run_ms - outside), PROFILER_MS)
    means = {name: max(ms - off, 0.0) for name, ms in means.items()}
    share = (run_ms - outside) / max(sum(means.values()), 1e-9)
    merged = _merged(files[MODEL_FILE], {name: ops[name] for name in means})
    nodes_ms = (
        NodeTime(merged.get(n, (n,))[0], ops[n], share * ms, merged.get(n, ())) for n, ms in means.items()
    )
    note = f"the profiler's own {1000 * off:.1f} us a node are taken off" if off else ""
    return NodeTimes(run_ms, tuple(nodes_ms), note, ((IN_AND_OUT, outside),))


def _of_each_run(
    events: Sequence[Mapping[str, Any]],
) -> tuple[dict[str, str], list[tuple[float, dict[str, float]]]]:
    """Return node -> operator, and for each run the total time and each node's time in ms.
    A node's time includes the gap to the next node: the executor's and the profiler's work for it."""
    ops: dict[str, str] = {}
    runs: list[tuple[float, dict[str, float]]] = []
    nodes: dict[str, float] = {}
    execute = 0.0
    for event in sorted(events, key=_end):
        if event.get("cat") == "Node" and event["name"].endswith(KERNEL):
            name = event["name"].removesuffix(KERNEL)
            ops[name] = event["args"]["op_name"]
            nodes[name] = nodes.get(name, 0.0) + event["dur"] / 1000
        elif event.get("name") == EXECUTE:
            execute = event["dur"] / 1000
        elif event.get("name") == RUN:
            between = max(execute - sum(nodes.values()), 0.0) / max(len(nodes), 1)
            runs.append((execute, {name: ms + between for name, ms in nodes.items()}))
            nodes = {}
    return ops, runs


def _end(event: Mapping[str, Any]) -> int:
    return int(event.get("ts", 0)) + int(event.get("dur", 0))


def _merged(path: Path, timed: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return timed node -> names of the file's nodes that it computes. Empty on a device without onnx.

    ONNX Runtime names a new node after an existing node or value, with a suffix: ``y_nchwc``
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
    merged: dict[str, list[ir.Node]] = {}
    runs_in: dict[ir.Node, str] = {}
    for name in timed:
        node = next((by_name[candidate] for candidate in without_endings(name) if candidate in by_name), None)
        if node is not None:
            merged[name] = [node]
            runs_in.setdefault(node, name)
    for name, nodes in merged.items():
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
            merged[runs_in[node]].append(node)
    names = {name: tuple(str(node.name) for node in nodes if node.name) for name, nodes in merged.items()}
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
    """Return the outputs of each node, computed on the accelerator that the options name, or on the CPU.

    Raises:
        EngineError: ONNX Runtime refused the model, or there is no such accelerator.
    """
    import onnx_ir as ir  # here: a device has no onnx, and can report times

    from edgekit.compiler.model.reference import onnx_values

    model, kind = ir.load(files[MODEL_FILE]), options.get(ACCELERATOR)
    if kind is None:
        return onnx_values(model, feeds)
    return onnx_values(model, feeds, lambda data: run_on(str(kind), data, options, feeds))


NODE_REPORTS = NodeReports(node_times=node_times, node_values=node_values, on_accelerators=True)
