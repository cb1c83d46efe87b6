"""Networks at random, of operators that pass channels on, join them or need all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir

from tests.fixtures.graphs import Graph

SIZE = 6
"""Height and width of all values."""


def random_network(folder: Path, seed: int) -> ir.Model:
    """Some 12 random steps between a Conv and two outputs: a picture, and numbers."""
    rng = np.random.default_rng(seed)
    graph = Graph({"x": [1, 3, SIZE, SIZE]}, seed=1000 * seed)
    values = [(graph.conv("x", 8, 3, 3), 8)]
    for _ in range(12):
        x, channels = values[int(rng.integers(len(values)))]
        y, other = values[int(rng.integers(len(values)))]
        step = STEPS[int(rng.integers(len(STEPS)))]
        made = step(graph, rng, x, channels, y, other)
        if made is not None:
            values.append(made)
    x, channels = values[-1]
    pooled = graph("Flatten", graph("GlobalAveragePool", x))
    hidden = graph("Relu", graph("Gemm", pooled, graph.weights(channels, 16), graph.weights(16)))
    numbers = graph("MatMul", attended(graph, hidden), graph.weights(4, 4))
    return graph.model(folder, graph.conv(x, 2, channels), numbers)


def attended(graph: Graph, x: str) -> str:
    """[1, 16] as 4 tokens of 4, two heads of attention, and an MLP."""
    tokens = graph("MatMul", graph("Reshape", x, np.array([1, 4, 4])), graph.weights(4, 8))

    def heads() -> str:
        made = graph("Add", graph("MatMul", tokens, graph.weights(8, 12)), graph.weights(12))
        return graph("Transpose", graph("Reshape", made, np.array([1, 4, 3, 4])), perm=[0, 2, 1, 3])

    q, k, v = heads(), heads(), heads()
    weights = graph("Softmax", graph("MatMul", q, graph("Transpose", k, perm=[0, 1, 3, 2])), axis=-1)
    joined = graph("Transpose", graph("MatMul", weights, v), perm=[0, 2, 1, 3])
    out = graph("MatMul", graph("Reshape", joined, np.array([1, 4, 12])), graph.weights(12, 8))
    tokens = graph("Add", tokens, out)
    wide = graph("Tanh", graph("MatMul", tokens, graph.weights(8, 16)))
    return graph("Flatten", graph("ReduceMean", graph("MatMul", wide, graph.weights(16, 4)), np.array([2])))


Made = tuple[str, int] | None
Step = Callable[[Graph, np.random.Generator, str, int, str, int], Made]


def _conv(graph: Graph, rng: np.random.Generator, x: str, channels: int, *_: object) -> Made:
    wide = int(rng.choice([4, 8, 12]))
    return graph.conv(x, wide, channels, int(rng.choice([1, 3]))), wide


def _depthwise(graph: Graph, _: object, x: str, channels: int, *__: object) -> Made:
    return graph.conv(x, channels, channels, 3, groups=channels), channels


def _grouped(graph: Graph, _: object, x: str, channels: int, *__: object) -> Made:
    if channels % 2:
        return None
    return graph.conv(x, 2 * channels, channels, 3, groups=channels // 2), 2 * channels


def _activation(graph: Graph, rng: np.random.Generator, x: str, channels: int, *_: object) -> Made:
    return graph(str(rng.choice(["Relu", "Sigmoid", "HardSwish", "Exp"])), x), channels


def _join(graph: Graph, rng: np.random.Generator, x: str, channels: int, y: str, other: int) -> Made:
    if channels != other:
        return graph("Concat", x, y, axis=1), channels + other
    return graph(str(rng.choice(["Add", "Mul", "Sub"])), x, y), channels


def _shortcut(graph: Graph, _: object, x: str, channels: int, *__: object) -> Made:
    return graph("Add", x, graph("Relu", graph.conv(x, channels, channels))), channels


def _gate(graph: Graph, _: object, x: str, channels: int, *__: object) -> Made:
    small = graph("Relu", graph.conv(graph("GlobalAveragePool", x), 4, channels))
    return graph("Mul", x, graph("HardSigmoid", graph.conv(small, channels, 4))), channels


def _slopes(graph: Graph, _: object, x: str, channels: int, *__: object) -> Made:
    return graph("PRelu", x, np.abs(graph.weights(channels, 1, 1))), channels


def _halves(graph: Graph, _: object, x: str, channels: int, *__: object) -> Made:
    half = channels // 2
    sizes = np.array([half, channels - half])
    first = graph("Split", x, sizes, axis=1, outputs=2)
    second = f"{first}_1"
    if channels % 2:
        return second, channels - half
    return graph("Concat", graph("Neg", second), first, axis=1), channels


def _slice(graph: Graph, _: object, x: str, channels: int, *__: object) -> Made:
    return graph("Slice", x, np.array([1]), np.array([channels]), np.array([1])), channels - 1


def _shuffle(graph: Graph, rng: np.random.Generator, x: str, channels: int, *_: object) -> Made:
    mode = str(rng.choice(["DCR", "CRD"]))
    made = graph("DepthToSpace", graph.conv(x, 16, channels), blocksize=2, mode=mode)
    return graph("MaxPool", made, kernel_shape=[2, 2], strides=[2, 2]), 4


def _bigger(graph: Graph, _: object, x: str, channels: int, *__: object) -> Made:
    made = graph("Resize", x, "", "", np.array([1, channels, 2 * SIZE, 2 * SIZE]), mode="nearest")
    return graph("AveragePool", made, kernel_shape=[2, 2], strides=[2, 2]), channels


def _normalized(graph: Graph, _: object, x: str, channels: int, *__: object) -> Made:
    return graph("InstanceNormalization", x, graph.weights(channels), graph.weights(channels)), channels


def _needs_all(graph: Graph, rng: np.random.Generator, x: str, channels: int, *_: object) -> Made:
    if rng.integers(2):
        return graph("Softmax", x, axis=1), channels
    return graph("Sub", x, graph("ReduceMean", x, np.array([1]))), channels


STEPS: tuple[Step, ...] = (
    _conv, _conv, _depthwise, _grouped, _activation, _join, _join, _shortcut, _gate, _slopes, _halves, _slice,
    _shuffle, _bigger, _normalized, _needs_all,
)  # fmt: skip
