"""Pictures of digits, drawn at random, and a small network that learns them: no download."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from PIL import Image, ImageDraw, ImageFont

from edgekit.compiler.model.onnx_file import save_model
from edgekit.tensor_spec import Array
from tests.fixtures.graphs import Graph

SIZE = 16
CARD = """
title = "Digits"

[inputs.x]
kind = "image"
shape = [1, 1, 16, 16]
layout = "NCHW"
colour = "GREY"
resize = "stretch"
mean = [0]
std = [1]

[task]
kind = "classify"
decode = "logits"
labels = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
outputs = { scores = "%s" }
"""


def digits(count: int, seed: int) -> tuple[Array, Array]:
    """``[count, 1, 1, 16, 16]`` float32, pixels of 0 to 255, and ``[count]`` labels: turned, moved, noisy."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, count)
    fonts = [ImageFont.load_default(size) for size in (12, 14, 16)]
    pictures: Array = np.zeros((count, 1, 1, SIZE, SIZE), np.float32)
    for picture, label in zip(pictures, labels, strict=True):
        drawn = Image.new("L", (SIZE, SIZE), int(rng.integers(0, 60)))
        place = 4 + rng.uniform(-2, 2), rng.uniform(-3, 1)
        ImageDraw.Draw(drawn).text(
            place, str(label), fill=int(rng.integers(180, 255)), font=fonts[rng.integers(3)]
        )
        turned = np.asarray(drawn.rotate(float(rng.uniform(-15, 15)), Image.Resampling.BILINEAR))
        picture[0, 0] = np.clip(np.rint(turned + rng.normal(0, 15, turned.shape)), 0, 255)
    return pictures, labels


def network(folder: Path, channels: int = 16) -> ir.Model:
    """Three Convs and a Gemm, weights at random: ``x`` [1, 1, 16, 16] of 0 to 255 -> logits [1, 10]."""
    graph = Graph({"x": [1, 1, SIZE, SIZE]})
    x = graph("Mul", "x", np.array(1 / 128, np.float32))
    for inputs, outputs in ((1, channels), (channels, 2 * channels), (2 * channels, 2 * channels)):
        w = graph.weights(outputs, inputs, 3, 3) * np.float32(1.4)
        x = graph("Relu", graph("Conv", x, w, np.zeros(outputs, np.float32), pads=[1] * 4, strides=[2, 2]))
    flat = graph("Flatten", x)
    made = graph("Gemm", flat, graph.weights(10, 8 * channels), np.zeros(10, np.float32), transB=1)
    return graph.model(folder, made)


def trained(model: ir.Model, pictures: Array, labels: Array, epochs: int, seed: int = 0) -> ir.Model:
    """A copy of the network, trained on labels: a loop as a user of ``OnnxModule`` writes it."""
    import torch

    from edgekit.compiler.compress.torch import OnnxModule
    from edgekit.compiler.compress.torch.trained_weights import first_weights

    torch.manual_seed(seed)
    module: Any = OnnxModule(model, scales=dict.fromkeys(first_weights(model), 128.0))
    optimizer = torch.optim.AdamW(module.parameters(), 3e-3)
    for epoch in range(epochs):
        for indices in np.random.default_rng([seed, epoch]).permutation(len(pictures)).reshape(-1, 64):
            (logits,) = module({"x": torch.from_numpy(pictures[indices])}).values()
            loss = torch.nn.functional.cross_entropy(logits[:, 0], torch.from_numpy(labels[indices]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    made: ir.Model = module.write_back()
    return made


def write(folder: Path, name: str, model: ir.Model) -> Path:
    path = folder / name
    path.write_bytes(save_model(model))
    return path


def card_of(folder: Path, model: ir.Model) -> Path:
    path = folder / "card.toml"
    path.write_text(CARD % model.graph.outputs[0].name, "utf-8")
    return path
