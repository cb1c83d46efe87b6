"""What Session.run adds to the cheapest form of the raw engine's own call. Goal: 15 us + 1 %.

    python tests/benchmarks/bench_overhead.py [MODEL.onnx ...] [--seconds 3]

Counted are the forms that take the inputs and give the outputs. Those marked * move no data (``infer()`` on
tensors filled before): what is left when a caller works in the engine's own buffers, shown for comparison.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import edgekit
from edgekit.runtime import Session
from edgekit.target import Array
from tests.benchmarks.interleaved import interleaved
from tests.models import TWO_INPUTS, write

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
        (index, feeds[name].reshape(shape or feeds[name].shape)) for name, index, _, shape in runner._inputs
    ]
    out_of = [index for _, index, _, _ in runner._outputs]

    def set_invoke_get() -> list[Array]:
        for index, array in into:
            interpreter.set_tensor(index, array)
        interpreter.invoke()
        return [interpreter.get_tensor(index) for index in out_of]

    return {"set, invoke, get": set_invoke_get, "* invoke only": interpreter.invoke}


CALLS = {"ort": ort_calls, "openvino": openvino_calls, "tflite": tflite_calls}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("models", nargs="*", type=Path, metavar="MODEL.onnx")
    arguments.add_argument("--seconds", type=float, default=3.0, help="for each engine and model")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tiny = write(Path(folder), TWO_INPUTS, "tiny.onnx")
        for model in [tiny, *given.models]:
            path = Path(folder) / f"{model.stem}.edgekit"
            edgekit.build(model, targets=list(ENGINES)).save(path)
            for engine in ENGINES:
                measure(path, engine, given.seconds)


def measure(path: Path, engine: str, seconds: float) -> None:
    with Session(path, engine=engine, strict=True, threads=1) as session:
        random = np.random.default_rng(0)
        feeds = {s.name: np.asarray(random.uniform(0, 1, s.shape), s.dtype) for s in session.inputs}
        raw = CALLS[engine](session.runner, feeds, [spec.name for spec in session.outputs])
        timings = interleaved({"Session.run": lambda: session.run(feeds), **raw}, seconds=seconds)
    ours = timings["Session.run"]
    print(f"\n{path.stem} on {session.active.engine}, one thread, us a call" + " " * 10 + "min       p10")
    for name, timing in timings.items():
        print(f"    {name:40} {timing.min_s * 1e6:12.1f} {timing.p10_s * 1e6:9.1f}")
    counted = [name for name in raw if not name.startswith("*")]
    fastest = min(counted, key=lambda name: timings[name].min_s)
    added = ours.min_s - timings[fastest].min_s
    allowed = GOAL_S + GOAL_SHARE * timings[fastest].min_s
    verdict = "within" if added <= allowed else "OVER"
    print(f"    added to {fastest}: {added * 1e6:.1f} us, {verdict} the goal of {allowed * 1e6:.1f} us")


if __name__ == "__main__":
    main()
