"""Networks of well-known structure with random weights, as exporters write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit.tensor_spec import Array

FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


def light(name: str) -> onnx.ModelProto:
    """One of the networks that come with onnx without weights: here they have random ones.

    Weights as He et al. (2015) initialize, statistics of BatchNormalization near 0 and 1. The Softmax at the
    end, which random weights saturate, is left out.
    """
    path = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"
    model = onnx.load(path)
    draw = np.random.default_rng(0)
    shapes = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    small: set[str] = set()
    one: set[str] = set()
    for node in model.graph.node:
        if node.op_type == "BatchNormalization":
            one.update((node.input[1], node.input[4]))
            small.update((node.input[2], node.input[3]))
        if node.op_type in ("Conv", "Gemm"):
            small.update(node.input[2:3])
    kept = []
    for node in model.graph.node:
        if node.op_type != "ConstantOfShape" or not shapes[node.input[0]].size:
            kept.append(node)
            continue
        shape, out = [int(n) for n in shapes[node.input[0]]], node.output[0]
        if out in one or (out not in small and len(shape) == 1):
            array = draw.uniform(0.8, 1.2, shape)
        elif out in small:
            array = draw.normal(0, 0.05, shape)
        else:
            array = draw.normal(0, np.sqrt(2 / np.prod(shape[1:])), shape)
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), out))
    del model.graph.node[:]
    last = kept[-1]
    if last.op_type == "Softmax":
        kept = kept[:-1]
        model.graph.output[0].name = last.input[0]
    model.graph.node.extend(kept)
    weights = {i.name for i in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in weights]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    model.ir_version = max(model.ir_version, 4)
    return model


class Writer:
    """Collects nodes and weights; every method gives the name of what it makes."""

    def __init__(self, opset: int = 17) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._draw = np.random.default_rng(0)

    def op(self, kind: str, *inputs: str | Array | float, **attributes: Any) -> str:
        """A node with one output; arrays and numbers become constants."""
        names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        out = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, names, [out], **attributes))
        return out

    def constant(self, array: Array | float) -> str:
        held = np.asarray(array, np.float32) if isinstance(array, float) else np.asarray(array)
        name = f"constant_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(held, name))
        return name

    def random(self, *shape: int, scale: float | None = None) -> Array:
        """Normal, with a deviation of one over the root of the first axis if none is given."""
        deviation = shape[0] ** -0.5 if scale is None else scale
        return (self._draw.standard_normal(shape, np.float32) * np.float32(deviation)).astype(np.float32)

    def ints(self, *values: int) -> Array:
        return np.array(values, np.int64)

    def linear(self, x: str, width: int, out: int) -> str:
        """MatMul and Add, as exporters write a linear layer over more than two axes."""
        return self.op("Add", self.random(out, scale=0.02), self.op("MatMul", x, self.random(width, out)))

    def layer_norm(self, x: str, width: int) -> str:
        """As exporters write it below opset 17."""
        mean = self.op("ReduceMean", x, axes=[-1])
        centred = self.op("Sub", x, mean)
        variance = self.op("ReduceMean", self.op("Pow", centred, 2.0), axes=[-1])
        root = self.op("Sqrt", self.op("Add", variance, 1e-12))
        scaled = self.op("Mul", self.op("Div", centred, root), 1 + self.random(width, scale=0.1))
        return self.op("Add", scaled, self.random(width, scale=0.1))

    def gelu(self, x: str) -> str:
        """x / 2 * (1 + erf(x / sqrt 2)), as exporters write it."""
        erf = self.op("Erf", self.op("Div", x, float(np.sqrt(2))))
        return self.op("Mul", self.op("Mul", x, self.op("Add", erf, 1.0)), 0.5)

    def heads(self, x: str, length: int, heads: int, size: int, order: Sequence[int]) -> str:
        """1 x length x width apart as heads, transposed by ``order``; the batch by Shape, as exporters do."""
        batch = self.op("Unsqueeze", self.op("Gather", self.op("Shape", x), np.array(0)), self.ints(0))
        shape = self.op("Concat", batch, self.ints(length), self.ints(heads), self.ints(size), axis=0)
        return self.op("Transpose", self.op("Reshape", x, shape), perm=list(order))

    def model(
        self, inputs: Mapping[str, tuple[int, tuple[int, ...]]], output: str, shape: Sequence[int]
    ) -> onnx.ModelProto:
        given = [helper.make_tensor_value_info(name, kind, dims) for name, (kind, dims) in inputs.items()]
        made = [helper.make_tensor_value_info(output, FLOAT, list(shape))]
        graph = helper.make_graph(self.nodes, "network", given, made, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)


def vision_transformer(layers: int = 4, width: int = 384, heads: int = 6, side: int = 224) -> onnx.ModelProto:
    """ViT (Dosovitskiy et al. 2021): patches of 16, a class token, queries, keys and values apart."""
    w, size, tokens = Writer(), width // heads, (side // 16) ** 2 + 1
    patches = w.op(
        "Conv", "image", w.random(width, 3, 16, 16, scale=0.036), w.random(width, scale=0.02),
        kernel_shape=[16, 16], strides=[16, 16],
    )  # fmt: skip
    flat = w.op("Transpose", w.op("Reshape", patches, w.ints(1, width, -1)), perm=[0, 2, 1])
    x = w.op("Concat", w.random(1, 1, width), flat, axis=1)
    x = w.op("Add", x, w.random(1, tokens, width, scale=0.1))
    for _ in range(layers):
        y = w.layer_norm(x, width)
        query = w.heads(w.linear(y, width, width), tokens, heads, size, (0, 2, 1, 3))
        key = w.heads(w.linear(y, width, width), tokens, heads, size, (0, 2, 3, 1))
        value = w.heads(w.linear(y, width, width), tokens, heads, size, (0, 2, 1, 3))
        scores = w.op("Softmax", w.op("Mul", w.op("MatMul", query, key), float(size**-0.5)), axis=-1)
        seen = w.op("Transpose", w.op("MatMul", scores, value), perm=[0, 2, 1, 3])
        x = w.op("Add", x, w.linear(w.op("Reshape", seen, w.ints(1, tokens, width)), width, width))
        y = w.gelu(w.linear(w.layer_norm(x, width), width, 4 * width))
        x = w.op("Add", x, w.linear(y, 4 * width, width))
    first = w.op("Gather", w.layer_norm(x, width), np.array(0), axis=1)
    out = w.op("Gemm", first, w.random(100, width, scale=0.05), w.random(100, scale=0.02), transB=1)
    return w.model({"image": (FLOAT, (1, 3, side, side))}, out, (1, 100))


def sentence_encoder(
    layers: int = 6, width: int = 384, heads: int = 12, length: int = 128, words: int = 1000
) -> onnx.ModelProto:
    """all-MiniLM-L6's structure (BERT, Devlin et al. 2019) with fewer words: the mean of the tokens."""
    w, size = Writer(), width // heads
    embedded = w.op("Gather", w.random(words, width, scale=0.1), "input_ids")
    embedded = w.op("Add", embedded, w.op("Gather", w.random(2, width, scale=0.1), "token_type_ids"))
    x = w.layer_norm(w.op("Add", embedded, w.random(1, length, width, scale=0.1)), width)
    seen = w.op("Unsqueeze", w.op("Unsqueeze", "attention_mask", w.ints(1)), w.ints(2))
    hidden = w.op("Mul", w.op("Sub", 1.0, w.op("Cast", seen, to=FLOAT)), float(np.finfo(np.float32).min))
    for _ in range(layers):
        query = w.heads(w.linear(x, width, width), length, heads, size, (0, 2, 1, 3))
        key = w.heads(w.linear(x, width, width), length, heads, size, (0, 2, 3, 1))
        value = w.heads(w.linear(x, width, width), length, heads, size, (0, 2, 1, 3))
        scores = w.op("Div", w.op("MatMul", query, key), float(size**0.5))
        weights = w.op("Softmax", w.op("Add", scores, hidden), axis=-1)
        heard = w.op("Transpose", w.op("MatMul", weights, value), perm=[0, 2, 1, 3])
        joined = w.linear(w.op("Reshape", heard, w.ints(1, length, width)), width, width)
        x = w.layer_norm(w.op("Add", joined, x), width)
        y = w.linear(w.gelu(w.linear(x, width, 4 * width)), 4 * width, width)
        x = w.layer_norm(w.op("Add", y, x), width)
    mask = w.op("Cast", w.op("Unsqueeze", "attention_mask", w.ints(-1)), to=FLOAT)
    total = w.op("ReduceSum", w.op("Mul", x, mask), w.ints(1), keepdims=0)
    count = w.op("Clip", w.op("ReduceSum", mask, w.ints(1), keepdims=0), 1e-9)
    ids = dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), (INT64, (1, length)))
    return w.model(ids, w.op("Div", total, count), (1, width))
