"""Triton's model configuration and statistics extensions, which its clients and perf_analyzer read.

Source: triton-inference-server/server, docs/protocol/extension_model_configuration.md and
extension_statistics.md.
"""

from __future__ import annotations

from typing import Any

from edgekit.runtime.remote.inference_protocol import about_tensors
from edgekit.serve.served_model import ServedModel
from edgekit.serve.served_text import ServedText
from edgekit.tensor_spec import Json


def model_config(model: ServedModel | ServedText) -> dict[str, Json]:
    """Return a model's configuration. ``max_batch_size`` is 0: a request has the model's own shape, and the
    server batches requests itself."""
    tensors: dict[str, Any] = about_tensors(model.shapes)
    inputs, outputs = (
        [{"name": t["name"], "data_type": f"TYPE_{t['datatype']}", "dims": t["shape"]} for t in tensors[kind]]
        for kind in ("inputs", "outputs")
    )
    return {
        "name": model.name,
        "platform": "edgekit",
        "backend": model.session.active.engine,
        "max_batch_size": 0,
        "input": inputs,
        "output": outputs,
    }


def model_statistics(model: ServedModel | ServedText) -> dict[str, Json]:
    """Return a version's counts and times since it was loaded, in ns.

    Reading and writing tensors is not timed by model, so ``compute_input`` and ``compute_output`` are 0.
    """
    snapshot: dict[str, Any] = model.metrics.snapshot()
    failed = snapshot["outcomes"].get("failed", 0)
    done = sum(snapshot["outcomes"].get(outcome, 0) for outcome in ("ok", "fallback"))

    def duration(*stages: str) -> dict[str, Json]:
        rows = [row for row in snapshot["stages"] if row["stage"] in stages]
        return {
            "count": sum(row["count"] for row in rows),
            "ns": round(1e9 * sum(row["sum"] for row in rows)),
        }

    return {
        "name": model.name,
        "version": model.version,
        "inference_count": done,
        "execution_count": model.requests.counts()["runs"] if isinstance(model, ServedModel) else done,
        "inference_stats": {
            "success": duration("end_to_end"),
            "fail": {"count": failed, "ns": 0},
            "queue": duration("waiting", "wait"),
            "compute_input": {"count": 0, "ns": 0},
            "compute_infer": duration("infer", "tokens"),
            "compute_output": {"count": 0, "ns": 0},
        },
        "batch_stats": [],
    }
