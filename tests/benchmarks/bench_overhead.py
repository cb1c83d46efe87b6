"""What Session.run adds to the cheapest form of the raw engine's own call. Goal: 15 us + 1 %.

    python tests/benchmarks/bench_overhead.py [MODEL.onnx ...] [--seconds 3]

Counted are the forms that take the inputs and give outputs that stay. Those marked * don't (``infer()`` on
tensors filled before, outputs read in the engine's own memory): shown for comparison. Each form runs once a
round in shuffled order; minima over all rounds are compared, and the median of the differences within a round
is shown for each repeat: where that scatters, the machine was too busy to tell.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import edgekit
from edgekit.runtime import Session
from edgekit.tensor_spec import Array
from tests.benchmarks.interleaved import Timing, interleaved
from tests.fixtures.models import TWO_INPUTS, write

GOAL_S, GOAL_SHARE = 15e-6, 0.01
ENGINES = ("ort", "openvino", "tflite")

Call = Callable[[], object]


def ort_calls(runner: Any, feeds: Mapping[str, Array], outputs: list[str]) -> dict[str, Call]:
    session = runner._session
    bound = session.io_binding()
    for name, array in feeds.items():
        bound.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
    for name, array in zip(outputs, session.run(outputs, feeds), strict=True):
        bound.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        runner.__dict__.setdefault("kept", []).append(array)
    return {
        "run": lambda: session.run(outputs, feeds),
        "* run_with_iobinding, prebound": lambda: session.run_with_iobinding(bound),
    }


def openvino_calls(runner: Any, feeds: Mapping[str, Array], outputs: list[str]) -> dict[str, Call]:
    compiled = runner._compiled
    request = compiled.create_infer_request()
    given = dict(feeds)
    into = [(request.get_tensor(name).data, array) for name, array in feeds.items()]
    out_of = [request.get_tensor(name).data for name in outputs]

    def fill_infer_copy() -> list[Array]:
        for buffer, array in into:
            buffer[...] = array
        request.infer()
        return [buffer.copy() for buffer in out_of]

    return {
        "compiled_model(feeds)": lambda: compiled(given),
        "fill, infer(), copy": fill_infer_copy,
        "* infer(), preset": request.infer,
    }


def tflite_calls(runner: Any, feeds: Mapping[str, Array], outputs: list[str]) -> dict[str, Call]:
    interpreter = runner._interpreter
    into = [
        (index, feeds[name].reshape(shape or feeds[name].shape))
        for name, index, _, shape, _ in runner._inputs
    ]
    out_of = [index for _, index, *_ in runner._outputs]

    def set_invoke_get() -> list[Array]:
        for index, array in into:
            interpreter.set_tensor(index, array)
        interpreter.invoke()
        return [interpreter.get_tensor(index) for index in out_of]

    def fill_invoke_copy() -> list[Array]:
        fill()
        interpreter.invoke()
        return [interpreter.tensor(index)().copy() for index in out_of]

    def fill_invoke_view() -> list[float]:
        fill()
        interpreter.invoke()
        return [interpreter.tensor(index)().flat[0] for index in out_of]

    def fill() -> None:
        for index, array in into:
            interpreter.tensor(index)()[...] = array

    return {
        "set, invoke, get": set_invoke_get,
        "fill views, invoke, copy": fill_invoke_copy,
        "* fill views, invoke, read in place": fill_invoke_view,
        "* invoke only": interpreter.invoke,
    }


CALLS = {"ort": ort_calls, "openvino": openvino_calls, "tflite": tflite_calls}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("models", nargs="*", type=Path, metavar="MODEL.onnx")
    arguments.add_argument("--seconds", type=float, default=3.0, help="for each engine, model and repeat")
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--engine", choices=ENGINES, action="append", help="only this one; repeatable")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tiny = write(Path(folder), TWO_INPUTS, "tiny.onnx")
        for model in [tiny, *given.models]:
            path = Path(folder) / f"{model.stem}.edgekit"
            edgekit.build(model, targets=list(ENGINES)).save(path)
            for engine in given.engine or ENGINES:
                measure(path, engine, given.seconds, given.repeats)


def measure(path: Path, engine: str, seconds: float, repeats: int) -> None:
    with Session(path, engine=engine, strict=True, threads=1) as session:
        random = np.random.default_rng(0)
        feeds = {s.name: np.asarray(random.uniform(0, 1, s.shape), s.dtype) for s in session.inputs}
        raw = CALLS[engine](session.runner, feeds, [spec.name for spec in session.outputs])
        calls = {"Session.run": lambda: session.run(feeds), **raw}
        # CPU time of the whole process: OpenVINO computes on a thread of its own.
        rounds = [interleaved(calls, seconds=seconds, clock=time.process_time) for _ in range(repeats)]
    timings = {name: Timing.joined([r[name] for r in rounds]) for name in calls}
    print(f"\n{path.stem} on {session.active.engine}, one thread, us a call" + " " * 10 + "min       p10")
    for name, timing in timings.items():
        print(f"    {name:40} {timing.min_s * 1e6:12.1f} {timing.p10_s * 1e6:9.1f}")
    counted = [name for name in raw if not name.startswith("*")]
    fastest = min(counted, key=lambda name: timings[name].min_s)
    added = timings["Session.run"].min_s - timings[fastest].min_s
    allowed = GOAL_S + GOAL_SHARE * timings[fastest].min_s
    verdict = "within" if added <= allowed else "OVER"
    print(f"    added to {fastest}: {added * 1e6:.1f} us, {verdict} the goal of {allowed * 1e6:.1f} us")
    paired = [r["Session.run"].over_s(r[fastest]) * 1e6 for r in rounds]
    print(f"    added in the median round, by repeat: {', '.join(f'{us:.1f}' for us in paired)} us")


if __name__ == "__main__":
    main()
