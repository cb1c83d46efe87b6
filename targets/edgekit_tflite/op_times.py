"""The time of each operator of a .tflite file, each run alone. Host side: it reads and writes such files.

Neither LiteRT's nor tflite-runtime's Python has a profiler, and what XNNPACK merges into one partition has no
boundaries to take times at. So each operator becomes a file of its own, with its weights, and is run by the
engine with its usual delegate on the values that it gets within the model. What the parts take together is
not quite what the whole takes: each has its values in memory of its own. The cost of a call is taken off.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from edgekit.target.node_reports import NodeTime, NodeTimes, quiet_times
from edgekit.tensor_spec import Array
from edgekit_tflite.flatbuffer import pack
from edgekit_tflite.graph import Graph, Op, Tensor
from edgekit_tflite.run import open_interpreter

SECONDS = 20.0
"""After which no further round begins,"""
LEAST_RUNS = 3
"""but for so many."""
OWN_TIME = time.perf_counter if sys.platform == "win32" else time.process_time
"""CPU time of the process. Windows counts it in steps of 16 ms."""
HOW = "each operator was run alone: this engine has no profiler"


def op_times(
    graph: Graph,
    values: Mapping[int, Array],
    run_whole: Callable[[], object],
    threads: int,
    runs: int,
    folder: Path,
) -> NodeTimes:
    """Measure the operators that compute at each run, in their order; each is named by its output value.

    On one thread the times are CPU times: other programs interrupt a whole run more often than one operator.
    The operators run in rounds, in their order, so that caches hold their weights as in a whole run. When
    each operator of EfficientNet-Lite0 was repeated on its own, the operators took a quarter less time.

    Args:
        values: Tensor -> its stored content in a whole run.
        run_whole: Function that runs the whole file once; it is timed in each round.

    Raises:
        EngineError: the engine refused a single operator.
    """
    clock = OWN_TIME if threads == 1 else time.perf_counter
    constant = _constants(graph)
    ops = [op for op in graph.ops if any(i >= 0 and i not in constant for i in op.inputs)]
    calls: list[Callable[[], object]] = [_empty_call(folder)]
    for number, op in enumerate(ops):
        part, fed = _single_operator(graph, op, constant)
        interpreter = _opened(part, folder / f"{number}.tflite", threads)
        for detail, index in zip(interpreter.get_input_details(), fed, strict=True):
            interpreter.set_tensor(detail["index"], values[index])
        calls.append(interpreter.invoke)
    calls.append(run_whole)
    samples, end = [], time.perf_counter() + SECONDS
    for number in range(1 + runs):
        times = [_timed(call, clock) for call in calls]
        if number:  # the first warms up
            call_ms, *ops_ms, whole = times
            samples.append((whole, {str(i): max(0.0, ms - call_ms) for i, ms in enumerate(ops_ms)}))
        if number >= LEAST_RUNS and time.perf_counter() > end:
            break
    run_ms, means = quiet_times(samples)
    names = [graph.tensors[op.outputs[0]].name for op in ops]
    nodes = (
        NodeTime(name, op.code, means[str(i)]) for i, (name, op) in enumerate(zip(names, ops, strict=True))
    )
    return NodeTimes(run_ms, tuple(nodes), HOW)


def _constants(graph: Graph) -> set[int]:
    constants = {i for i, tensor in enumerate(graph.tensors) if tensor.data is not None}
    for op in graph.ops:
        if all(i < 0 or i in constants for i in op.inputs):
            constants.update(op.outputs)
    return constants


def _single_operator(graph: Graph, op: Op, constant: set[int]) -> tuple[Graph, list[int]]:
    """Return a program of this operator with those before it that compute its constants, and its inputs."""
    ops, pending = [op], list(op.inputs)
    while pending:
        index = pending.pop()
        producer = graph.tensors[index].producer if index >= 0 and index in constant else None
        if producer is not None and graph.ops[producer] not in ops:
            ops.insert(0, graph.ops[producer])
            pending += graph.ops[producer].inputs
    fed = list(dict.fromkeys(i for i in op.inputs if i >= 0 and i not in constant))
    part = Graph(graph.tensors, ops, fed, list(op.outputs))
    return part.pruned(), fed


def _opened(part: Graph, path: Path, threads: int) -> Any:
    names = ([f"{kind}{i}" for i in ends] for kind, ends in (("i", part.inputs), ("o", part.outputs)))
    path.write_bytes(pack(part, *names))
    return open_interpreter(path, threads)[1]


def _empty_call(folder: Path) -> Callable[[], object]:
    """Return a call that computes almost nothing, a Relu of one number; a whole run has it once."""
    ends = [Tensor(name, (1,), "float32") for name in ("x", "y")]
    path = folder / "call.tflite"
    invoke: Callable[[], object] = _opened(Graph(ends, [Op("RELU", (0,), (1,))], [0], [1]), path, 1).invoke
    return invoke


def _timed(call: Callable[[], object], clock: Callable[[], float]) -> float:
    started = clock()
    call()
    return 1000 * (clock() - started)
