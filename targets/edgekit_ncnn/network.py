"""Layers of a network, and the files ``model.param`` and ``model.bin`` that they become.

    7767517
    layers blobs
    type name inputs outputs [input...] [output...] 0=value -23303=count,value,value ...

A blob has one consumer, so a Split copies the blobs that have several. Layers that nothing reads are dropped.
Format: https://github.com/Tencent/ncnn/wiki/param-and-model-file-structure
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from edgekit.compiler.lowering.fp16_weights import stored_in_fp16
from edgekit.tensor_spec import Array

MAGIC = "7767517"
FLOAT32, FLOAT16, INT8 = 0, 0x01306B47, 0x000D4B38
"""First word of weights that name their element type."""
ARRAY_KEY = -23300
"""Keys of parameters that are arrays count down from here."""

Param = int | float | Sequence[int] | Sequence[float]


@dataclass
class Layer:
    """One layer.

    Attributes:
        params: Parameter number -> value.
        weights: Arrays in the order of the file.
        typed: Whether the first array names its element type, so that it can be float16 or int8.
        sources: ONNX nodes that it was built for.
    """

    kind: str
    inputs: list[str]
    outputs: list[str]
    params: dict[int, Param] = field(default_factory=dict)
    weights: list[Array] = field(default_factory=list)
    typed: bool = False


def live_layers(layers: Sequence[Layer], output_blobs: Sequence[str]) -> list[Layer]:
    """Return the layers that the output blobs need, in order, and all inputs."""
    needed, live = set(output_blobs), []
    for layer in reversed(layers):
        if layer.kind == "Input" or needed.intersection(layer.outputs):
            needed.update(layer.inputs)
            live.append(layer)
    return live[::-1]


def with_splits(layers: Sequence[Layer]) -> list[Layer]:
    """Return the layers with a Split behind each blob that is read more than once."""
    readers = Counter(name for layer in layers for name in layer.inputs)
    uses: Counter[str] = Counter()
    split: list[Layer] = []

    def reader(name: str) -> str:
        if readers[name] < 2:
            return name
        uses[name] += 1
        return f"{name}/{uses[name] - 1}"

    for layer in layers:
        split.append(replace(layer, inputs=[reader(name) for name in layer.inputs]))
        for name in layer.outputs:
            if readers[name] > 1:
                split.append(Layer("Split", [name], [f"{name}/{index}" for index in range(readers[name])]))
    return split


def network_files(layers: Sequence[Layer], output_blobs: Sequence[str], half: bool) -> tuple[bytes, bytes]:
    """Return the contents of ``model.param`` and ``model.bin``.

    Args:
        output_blobs: Blobs that are outputs of the network, which no layer reads.
        half: Store large weights in float16 (``compiler.lowering.fp16_weights``).
    """
    complete = with_splits(live_layers(layers, output_blobs))
    lines, weights = [], bytearray()
    for index, layer in enumerate(complete):
        blobs = " ".join([*layer.inputs, *layer.outputs])
        params = " ".join(_param(key, value) for key, value in sorted(layer.params.items()))
        counts = f"{len(layer.inputs)} {len(layer.outputs)}"
        lines.append(f"{layer.kind} {layer.kind.lower()}_{index} {counts} {blobs} {params}".rstrip())
        for place, array in enumerate(layer.weights):
            weights += _stored(array, layer.typed and place == 0, half)
    blobs_written = sum(len(layer.outputs) for layer in complete)
    text = "\n".join([MAGIC, f"{len(lines)} {blobs_written}", *lines, ""])
    return text.encode(), bytes(weights)


def _stored(array: Array, typed: bool, half: bool) -> bytes:
    if not typed:
        return array.astype("<f4").tobytes()
    if array.dtype == np.int8:
        tag, content = INT8, array.tobytes()
    elif half and stored_in_fp16(array):
        tag, content = FLOAT16, array.astype("<f2").tobytes()
    else:
        tag, content = FLOAT32, array.astype("<f4").tobytes()
    return tag.to_bytes(4, "little") + content + bytes(-len(content) % 4)


def _param(key: int, value: Param) -> str:
    """Format one parameter. ncnn takes a number with a point for a float, and reads 15 characters of it."""
    if isinstance(value, (int, float)):
        return f"{key}={_number(value)}"
    return f"{ARRAY_KEY - key}={len(value)}," + ",".join(_number(item) for item in value)


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.8e}"
