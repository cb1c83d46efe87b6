"""Node reports of ``model.xml``: times by OpenVINO's own counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from edgekit.target.node_reports import NodeReports, NodeTime
from edgekit.tensors import Array, Json, TensorSpec
from edgekit_openvino.run import OpenvinoRunner, compiled_model

UNTIMED = ("Parameter", "Result", "Constant")


def node_times(
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    feeds: Mapping[str, Array],
    threads: int,
    runs: int,
) -> list[NodeTime]:
    """The layers that the CPU plugin executes, in its order.

    Raises:
        EngineError: OpenVINO refused the model.
    """
    runner = OpenvinoRunner(compiled_model(files, options, threads, counted=True), inputs, outputs)
    least: dict[str, NodeTime] = {}
    for _ in range(runs):
        runner.run(feeds)
        for layer in runner.counters():
            if str(layer.status).endswith("EXECUTED") and layer.node_type not in UNTIMED:
                kind = f"{layer.node_type} {layer.exec_type}"
                found = NodeTime(layer.node_name, kind, layer.real_time.total_seconds() * 1000)
                least[found.node] = min(least.get(found.node, found), found, key=lambda time: time.ms)
    runner.close()
    return list(least.values())


NODE_REPORTS = NodeReports(node_times=node_times)
