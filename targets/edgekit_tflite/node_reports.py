"""Node reports of ``model.tflite``: values by the engine's plain kernels, times of each operator alone.

Values within an XNNPACK partition cannot be read, so no delegate is applied: integers are the same there,
and floats differ only by rounding.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.target.node_reports import NodeReports, NodeTimes, NodeValue
from edgekit.tensor_spec import Array, Json, TensorSpec
from edgekit_tflite.run import FILE, open_runner


def node_times(
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    feeds: Mapping[str, Array],
    threads: int,
    runs: int,
) -> NodeTimes:
    """Measure the operators, each run alone by the engine on the values of this run (op_times.py).

    Raises:
        MissingDependency: the engine is not installed.
        EngineError: the engine refused the file, or an operator alone.
    """
    from edgekit_tflite.importer.file import read_file  # here: a device has no flatbuffers
    from edgekit_tflite.op_times import op_times

    graph = read_file(files[FILE].read_bytes()).graph
    runner = open_runner(files, inputs, outputs, options, 1, watched=True)
    runner.run(feeds)
    computed = {i for op in graph.ops for i in op.outputs}
    values = {i: runner.interpreter.get_tensor(i) for i in sorted(computed.union(graph.inputs))}
    runner.close()
    whole = open_runner(files, inputs, outputs, options, threads)
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        return op_times(graph, values, lambda: whole.run(feeds), threads, runs, Path(folder))


def node_values(
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    feeds: Mapping[str, Array],
) -> list[NodeValue]:
    """Return the outputs of each operator, dequantized.

    Raises:
        MissingDependency: the engine is not installed.
        EngineError: the engine refused the file.
    """
    runner = open_runner(files, inputs, outputs, options, 1, watched=True)
    runner.run(feeds)
    interpreter = runner.interpreter
    tensors = {detail["index"]: detail for detail in interpreter.get_tensor_details()}
    values = []
    for op in interpreter._get_ops_details():
        for index in op["outputs"]:
            detail = tensors[int(index)]
            array = _real(interpreter.get_tensor(int(index)), detail)
            if array is not None:
                read = tuple(tensors[int(i)]["name"] for i in op["inputs"] if int(i) in tensors)
                values.append(NodeValue(detail["name"], op["op_name"], detail["name"], read, array))
    runner.close()
    return values


def _real(array: Array, detail: Mapping[str, Any]) -> Array | None:
    """Return the numbers that a tensor represents, float32; None if they are not real numbers."""
    if array.dtype.kind == "f":
        return array
    quantization = detail["quantization_parameters"]
    scales, zeros = quantization["scales"], quantization["zero_points"]
    if array.dtype.kind not in "iu" or len(scales) != 1:
        return None
    real: Array = (array.astype(np.float32) - zeros[0]) * scales[0]
    return real


NODE_REPORTS = NodeReports(node_times=node_times, node_values=node_values)
