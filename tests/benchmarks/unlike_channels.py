"""Random networks whose outputs join numbers of different size, and how much of each is left in int8.

Convs or products, with a head whose channels differ by a ratio of 10 to 10,000, in any number and order, with
and without a bias and an activation behind it, moved by Reshape and Transpose, or joined with another head.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit.tensor_spec import Array

LEAST_DB = 12.0
"""SNR below which a channel counts as lost."""


@dataclass(frozen=True)
class UnlikeNetwork:
    """A network.

    Attributes:
        path: Its file.
        shape: Shape of its input, ``x``.
        channel_axis: Axis of the channels of ``y``. After a Reshape [.., a, b, ..], the first of two axes.
        split: Whether the channels are two axes, ``channel_axis`` and the next.
    """

    path: Path
    shape: tuple[int, ...]
    channel_axis: int
    split: bool

    def feeds(self, seed: int) -> dict[str, Array]:
        return {"x": np.random.default_rng(seed).normal(0, 1, self.shape).astype(np.float32)}

    def channels(self, y: Array) -> Array:
        """Return the values of each channel: [channels, values]."""
        axes = (self.channel_axis, self.channel_axis + 1) if self.split else (self.channel_axis,)
        moved = np.moveaxis(y, axes, range(len(axes)))
        return moved.reshape(int(np.prod(moved.shape[: len(axes)])), -1)


def draw(folder: Path, seed: int) -> UnlikeNetwork:
    """Write the network of a seed."""
    rng = np.random.default_rng(seed)
    constants: dict[str, Array] = {}
    nodes: list[onnx.NodeProto] = []

    def constant(array: Any, dtype: Any = np.float32) -> str:
        constants[f"c{len(constants)}"] = np.asarray(array, dtype)
        return f"c{len(constants) - 1}"

    def add(op: str, inputs: list[str], **attributes: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [f"v{len(nodes)}"], f"n{len(nodes)}", **attributes))
        return f"v{len(nodes) - 1}"

    of_images = bool(rng.integers(2))
    width, channels = int(rng.integers(8, 48)), int(rng.choice([4, 6, 8, 12, 16, 24, 32]))
    size = int(rng.integers(8, 20))
    shape = (1, int(rng.integers(3, 9)), size, size) if of_images else (1, int(rng.integers(16, 64)))

    def layer(value: str, read: int, write: int, gains: Array) -> str:
        size = int(rng.choice([1, 3]))
        kernel = [size, size] if of_images else []
        weights = rng.normal(0, 1, (write, read, *kernel)) * (2 / (read * np.prod(kernel))) ** 0.5
        weights -= weights.mean(tuple(range(1, weights.ndim)), keepdims=True)  # few channels of one sign
        weights *= gains.reshape(-1, *[1] * (weights.ndim - 1))
        bias = [constant(rng.normal(0, 0.3, write) * gains)] if rng.integers(2) else []
        if of_images:
            return add("Conv", [value, constant(weights), *bias], pads=[size // 2] * 4)
        if rng.integers(2):
            return add("Gemm", [value, constant(weights), *bias], transB=1)
        product = add("MatMul", [value, constant(weights.T)])
        return add("Add", [product, *bias]) if bias else product

    def gains(count: int, bounded: bool) -> Array:
        ratio = 10 ** rng.uniform(1, 4)
        levels = ratio ** rng.choice([0, 1] if rng.integers(3) else [0, 0.5, 1], count)
        return np.asarray(levels * (2 / ratio if bounded else 10 ** rng.uniform(-2, 2)))  # no step functions

    value, read = "x", shape[1]
    for _ in range(int(rng.integers(0, 4))):
        value, read = add("Relu", [layer(value, read, width, np.ones(width))]), width
    heads = [channels] if rng.integers(3) else [channels, int(rng.integers(1, 9))]
    outputs = []
    for count in heads:
        activation = str(rng.choice(["", "", "Relu", "Sigmoid", "Tanh", "LeakyRelu"]))
        head = layer(value, read, count, gains(count, activation in ("Sigmoid", "Tanh")))
        outputs.append(add(activation, [head]) if activation else head)
    value = add("Concat", outputs, axis=1) if len(outputs) > 1 else outputs[0]
    total, axis, split = sum(heads), 1, False
    y_shape = [1, total, size, size] if of_images else [1, total]
    move = int(rng.integers(4))
    if move == 1 and of_images:  # [1, cells, channels]
        value = add("Reshape", [value, constant([1, total, size * size], np.int64)])
        value, y_shape, axis = add("Transpose", [value], perm=[0, 2, 1]), [1, size * size, total], 2
    elif move == 2 and of_images:
        value, y_shape, axis = add("Transpose", [value], perm=[0, 2, 3, 1]), [1, size, size, total], 3
    elif move == 3 and total % 2 == 0:  # channels in two axes
        y_shape, split = [1, 2, total // 2, *y_shape[2:]], True
        value = add("Reshape", [value, constant(y_shape, np.int64)])
    nodes[-1].output[0] = "y"
    graph = helper.make_graph(
        nodes,
        "unlike",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, y_shape)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    path = folder / f"unlike-{seed}.onnx"
    path.write_bytes(model.SerializeToString(deterministic=True))
    return UnlikeNetwork(path, shape, axis, split)


def lost_channels(
    network: UnlikeNetwork, expected: Sequence[Mapping[str, Array]], actual: Sequence[Mapping[str, Array]]
) -> list[float]:
    """Return the SNR in dB of each channel of which little is left, over all samples."""
    x, y = (
        np.concatenate([network.channels(one["y"].astype(np.float64)) for one in side], axis=1)
        for side in (expected, actual)
    )
    noise, signal = np.square(x - y).sum(1), np.square(x).sum(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        snr_db = np.where(noise > 0, 10 * np.log10(signal / noise), np.inf)
    return sorted(snr_db[(signal > 0) & (snr_db < LEAST_DB)].tolist())
