"""How often ``edgekit bench --against`` is right: of two equal bundles, and of one with 3 % more to compute.

    python tests/benchmarks/bench_significance.py [ort|openvino|tflite] [--times 20] [--seconds 3]
                                                  [--clock cpu]

The first bundle is a chain of 33 equal Convs, the third has 34 of them: 1 / 33 = 3.0 % more. Prints each
answer, and at last how many said "no difference" of the equal ones, and how many "slower" of the longer one;
19 of 20 are wanted of both.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import edgekit
from edgekit.bundle import Bundle
from edgekit.compiler.bench.compare import Side, compare, statement

LAYERS = 33
SHAPE = (1, 32, 24, 24)


def chain(folder: Path, layers: int, target: str) -> Bundle:
    """A bundle of a model of so many equal Convs; each has weights of its own, as layers do."""
    random = np.random.default_rng(0)
    weights, nodes = [], []
    for number in range(layers):
        weight = random.normal(size=(SHAPE[1], SHAPE[1], 3, 3)).astype(np.float32) / 17
        weights.append(numpy_helper.from_array(weight, f"w{number}"))
        name = "y" if number == layers - 1 else f"a{number}"
        read = "x" if number == 0 else f"a{number - 1}"
        nodes.append(
            helper.make_node("Conv", [read, f"w{number}"], [name], f"conv{number}", pads=[1, 1, 1, 1])
        )
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / f"chain{layers}.onnx"
    path.write_bytes(model.SerializeToString(deterministic=True))
    return edgekit.build(path, targets=[target])


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("target", nargs="?", default="ort")
    arguments.add_argument("--times", type=int, default=20)
    arguments.add_argument("--seconds", type=float, default=3.0)
    arguments.add_argument("--clock", default="cpu")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        short, same, long = (
            Side(chain(Path(folder), layers, given.target), f"{given.target}-fp32", name)
            for layers, name in ((LAYERS, "33 layers"), (LAYERS, "33 again"), (LAYERS + 1, "34 layers"))
        )
        right = [0, 0]
        for _ in range(given.times):
            for kind, other in enumerate((same, long)):
                found = compare(other, short, threads=1, seconds=given.seconds, clock=given.clock)
                right[kind] += not found["differs"] if kind == 0 else found["low"] > 1
                print(f"{statement(found)}  ({found['rounds']} rounds, {found['ms'][1]} ms)", flush=True)
    print(f"no difference where there is none: {right[0]} of {given.times}")
    print(f"3 % found: {right[1]} of {given.times}")


if __name__ == "__main__":
    main()
