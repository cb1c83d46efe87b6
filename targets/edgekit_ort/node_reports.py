"""Node reports of ``model.onnx``: times by ONNX Runtime's own profiler, values with nothing optimized."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from edgekit.target.node_reports import NodeReports, NodeTime, NodeValue
from edgekit.tensors import Array, Json, TensorSpec
from edgekit_ort.run import MODEL_FILE, open_session

KERNEL = "_kernel_time"
"""How the profiler ends the name of a node's own event."""
BLOCKED = "_nchwc"
"""How ONNX Runtime ends the name of what it computes in its own layout (nchwc_transformer.cc)."""


def node_times(
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    feeds: Mapping[str, Array],
    threads: int,
    runs: int,
) -> list[NodeTime]:
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
        for _ in range(runs):
            session.run(None, dict(feeds))
        events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    known = _names(files[MODEL_FILE])
    least: dict[str, NodeTime] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith(KERNEL):
            name, op = event["name"].removesuffix(KERNEL), event["args"]["op_name"]
            found = NodeTime(known.get((name, op), name), op, event["dur"] / 1000)
            least[found.node] = min(least.get(found.node, found), found, key=lambda time: time.ms)
    return list(least.values())


def _names(path: Path) -> dict[tuple[str, str], str]:
    """Where a node is computed in blocked layout, ONNX Runtime calls it by the value that it makes:
    (that name, operator) -> the node's own. Empty on a device, which has no onnx.
    """
    try:
        import onnx_ir as ir
    except ModuleNotFoundError:
        return {}
    return {
        (f"{output.name}{BLOCKED}", node.op_type): str(node.name)
        for node in ir.load(path).graph
        for output in node.outputs
        if node.name
    }


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
