"""Node reports of ``model.xml``: times by OpenVINO's own counters."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.target.node_reports import QUIET_PART, NodeReports, NodeTime, NodeTimes
from edgekit.tensor_spec import Array, Json, TensorSpec
from edgekit_openvino.run import OpenvinoRunner, compiled_model, executed_layers

UNTIMED = ("Parameter", "Result", "Constant")
MOST_SERVED = 16
"""So many names of what an inserted layer is there for."""
IN_AND_OUT, BETWEEN = "arrays in and out", "between layers"
"""Parts of a run outside of layers: ours around ``infer()``, and the plugin's within it."""
COARSE_MS = 5.0
"""Up to this time of a run, all runs count: the counters' whole microseconds would show in a part of them."""


def node_times(
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    feeds: Mapping[str, Array],
    threads: int,
    runs: int,
) -> NodeTimes:
    """Measure the layers that the CPU plugin executes, in its order, each with the layers that are merged
    into it.

    Raises:
        EngineError: OpenVINO refused the model.
    """
    compiled = compiled_model(files, options, threads, counted=True)
    runner = _ClockedRunner(compiled, inputs, outputs)
    merged = _merged(compiled)
    kinds: dict[str, str] = {}
    totals: list[dict[str, float]] = []
    run_ms: list[float] = []
    infer_ms: list[float] = []
    feeds = {
        name: np.array(array) for name, array in feeds.items()
    }  # a read-only one would be copied each time
    for number in range(1, 2 + runs):
        started = time.perf_counter()
        runner.run(feeds)
        run_ms.append(1000 * (time.perf_counter() - started))
        infer_ms.append(runner.infer_ms)
        totals.append({})
        for layer in runner.counters():
            if str(layer.status).endswith("EXECUTED") and layer.node_type not in UNTIMED:
                kinds[layer.node_name] = f"{layer.node_type} {layer.exec_type}"
                # What it tells is the mean over all runs so far (openvino's perf_count.h), in whole us.
                totals[-1][layer.node_name] = number * layer.real_time.total_seconds() * 1000
    runner.close()
    step = len(run_ms) // QUIET_PART if min(run_ms) > COARSE_MS else len(run_ms) - 1
    first = min(
        range(1, len(run_ms) - step + 1), key=lambda start: sum(run_ms[start : start + step])
    )  # the first run is left out: it warms up
    last = first + step - 1
    at_start, at_end = totals[first - 1], totals[last]
    nodes = [
        NodeTime(
            n, kind, max(0.0, at_end.get(n, 0.0) - at_start.get(n, 0.0)) / step, *merged.get(n, ((), ()))
        )
        for n, kind in kinds.items()  # a layer that only passes data on is not executed in every run
    ]
    whole, within = (sum(times_ms[first : last + 1]) / step for times_ms in (run_ms, infer_ms))
    between = max(0.0, within - sum(node.ms for node in nodes))
    return NodeTimes(whole, tuple(nodes), "", ((IN_AND_OUT, whole - within), (BETWEEN, between)))


class _ClockedRunner(OpenvinoRunner):
    def __init__(self, compiled: Any, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        super().__init__(compiled, inputs, outputs)
        self._request = _Clocked(self._request)

    @property
    def infer_ms(self) -> float:
        return float(self._request.infer_ms)


class _Clocked:
    def __init__(self, request: Any) -> None:
        self._request, self.infer_ms = request, 0.0

    def infer(self) -> None:
        started = time.perf_counter()
        self._request.infer()
        self.infer_ms = 1000 * (time.perf_counter() - started)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)


def _merged(compiled: Any) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Layer -> names of the file's layers that it computes; and those that the next one computes, for whose
    sake it is there if the plugin or the reader has inserted it, e.g. to change a layout."""
    names_by_layer: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
    for layer in reversed(executed_layers(compiled)):
        named = str(layer.get_rt_info()["originalLayersNames"].astype(str))
        names = tuple(name for name in named.split(",") if name)
        readers = [
            names_by_layer[port.get_node().get_friendly_name()]
            for o in layer.outputs()
            for port in o.get_target_inputs()
            if port.get_node().get_friendly_name() in names_by_layer
        ]
        names_by_layer[layer.get_friendly_name()] = (
            names,
            tuple(name for reader in readers for both in reader for name in both)[:MOST_SERVED],
        )
    return names_by_layer


NODE_REPORTS = NodeReports(node_times=node_times)
