"""Networks with one thing that int8 can't hold, and whose place is known."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgekit.compiler.evaluate.fidelity import Evaluator
from edgekit.compiler.evaluate.samples import load_samples
from edgekit.compiler.evaluate.verify import ReferenceOutputs
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.passes import run_passes
from edgekit.compiler.pipeline.quantization_data import QuantizationData, collect_quantization_data
from edgekit.compiler.quantize.equalization import Equalization
from edgekit.compiler.quantize.observe.calibrate import split
from edgekit.tensor_spec import Array

CHANNELS, SIZE = 32, 40


class Network:
    """A chain of Conv and Relu; the weights are seeded."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._last = "x"

    def weights(self, kernel: int) -> Array:
        scale = (2.0 / (CHANNELS * kernel * kernel)) ** 0.5
        return self._rng.normal(0, scale, (CHANNELS, CHANNELS, kernel, kernel)).astype(np.float32)

    def conv(self, name: str, weights: Array, bias: Array | None = None) -> None:
        pad = weights.shape[2] // 2
        bias = np.zeros(CHANNELS, np.float32) if bias is None else bias.astype(np.float32)
        self._constants += [
            numpy_helper.from_array(weights.astype(np.float32), f"{name}.weight"),
            numpy_helper.from_array(bias, f"{name}.bias"),
        ]
        inputs = [self._last, f"{name}.weight", f"{name}.bias"]
        self._nodes.append(helper.make_node("Conv", inputs, [name], name, pads=[pad] * 4))
        self._nodes.append(helper.make_node("Relu", [name], [f"{name}.relu"], f"{name}.relu"))
        self._last = f"{name}.relu"

    def plain(self, name: str, count: int) -> None:
        for number in range(count):
            self.conv(f"{name}{number}", self.weights(3))

    def write(self, folder: Path) -> Path:
        shape = [1, CHANNELS, SIZE, SIZE]
        graph = helper.make_graph(
            self._nodes,
            "planted",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(self._last, TensorProto.FLOAT, shape)],
            self._constants,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model, full_check=True)
        path = folder / "planted.onnx"
        path.write_bytes(model.SerializeToString(deterministic=True))
        return path


def fragile_layer(folder: Path) -> Path:
    """``fragile``: its largest weights, by far, meet a channel that is always zero. One scale for each output
    channel erases all the others."""
    network = Network()
    network.plain("before", 6)
    dead = np.zeros(CHANNELS)
    dead[0] = -1000.0
    network.conv("dying", network.weights(3), dead)
    weights = network.weights(1)
    weights[:, 0] = 500.0 * np.abs(weights).max()
    network.conv("fragile", weights)
    network.plain("after", 6)
    return network.write(folder)


def outlier_channel(folder: Path) -> Path:
    """``wide`` -> ``narrow``: between them one channel is a thousand times the others, and as important."""
    network = Network()
    network.plain("before", 6)
    wide, narrow = network.weights(1), network.weights(1)
    wide[5] *= 1000.0
    narrow[:, 5] /= 1000.0
    network.conv("wide", wide)
    network.conv("narrow", narrow)
    network.plain("after", 6)
    return network.write(folder)


def sound(folder: Path) -> Path:
    """Nothing is wrong with it."""
    network = Network()
    network.plain("conv", 3)
    return network.write(folder)


def samples(count: int) -> list[dict[str, Array]]:
    rng = np.random.default_rng(1)
    return [{"x": rng.normal(0, 1, (1, CHANNELS, SIZE, SIZE)).astype(np.float32)} for _ in range(count)]


def without_equalization() -> AbstractContextManager[object]:
    """Leave the outlier channel as it is: equalization would mend it, with nothing left to find."""
    return patch(
        "edgekit.compiler.pipeline.quantization_data.equalize",
        lambda model, observations, *_: Equalization(model, observations),
    )


def ground_of(path: Path) -> QuantizationData:
    """What the search of such a network begins with."""
    source = open_model(path)
    inputs, outputs = signature(source)
    canonical = source.clone()
    run_passes(canonical)
    loaded = load_samples(samples(12), inputs)
    with without_equalization():
        data = collect_quantization_data(
            source, canonical, ReferenceOutputs(inputs, outputs, ()), loaded, split(loaded.arrays), None
        )
    # The whole output is judged: its worst channel is hardly ever active, and says little of the others.
    context = data.search_context
    return replace(
        data, search_context=replace(context, evaluator=Evaluator(None, context.evaluator.expected))
    )
