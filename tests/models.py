"""Small models, made in code: no test downloads one."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper, parser


def write(folder: Path, text: str, name: str = "model.onnx") -> Path:
    """Write the ONNX file that ``text`` (ONNX's textual form) describes; the checker has seen it."""
    model = parser.parse_model(text)
    onnx.checker.check_model(model, full_check=True)
    path = folder / name
    path.write_bytes(model.SerializeToString(deterministic=True))
    return path


SMALL_CNN = """
<ir_version: 8, opset_import: ["": 17]>
small (float[1,3,16,16] image) => (float[1,4] scores, float[1,4,16,16] features)
{
    weight = Constant<value = float[4,3,1,1] {0.5,-0.25,0.125, 1,0.5,-1, -0.75,0.5,0.25, 0.1,0.2,0.3}>()
    bias = Constant<value = float[4] {0.1,0.2,-0.1,0}>()
    convolved = Conv(image, weight, bias)
    features = Relu(convolved)
    pooled = GlobalAveragePool(features)
    flat = Flatten(pooled)
    scores = Softmax(flat)
}
"""
"""A convolution, a pooling and a softmax; two outputs, the first of which saturates."""

TWO_INPUTS = """
<ir_version: 8, opset_import: ["": 17]>
two (float[1,8] left, float[1,8] right) => (float[1,8] sum)
{
    sum = Add(left, right)
}
"""

DYNAMIC = """
<ir_version: 8, opset_import: ["": 17]>
dynamic (float[N,3,16,16] image) => (float[N,3,16,16] out)
{
    out = Relu(image)
}
"""

RANDOM = """
<ir_version: 8, opset_import: ["": 17]>
noise (float[2,3] x) => (float[2,3] y)
{
    y = RandomUniformLike(x)
}
"""
"""An operator that TFLite's lowering has no form for."""

LOGARITHM = """
<ir_version: 8, opset_import: ["": 17]>
logarithm (float[2] x) => (float[2] y)
{
    y = Log(x)
}
"""
"""Below zero, as half of its random inputs are, its answer is NaN."""

COLOUR_FINDER = """
<ir_version: 8, opset_import: ["": 17]>
finder (float[1,3,32,32] image) => (float[1,1,4] boxes, float[1,1,3] scores)
{
    shape = Constant<value = int64[3] {1,1,3}>()
    nothing = Constant<value = float[3,4] {0,0,0,0,0,0,0,0,0,0,0,0}>()
    middle = Constant<value = float[4] {0.25,0.25,0.75,0.75}>()
    means = GlobalAveragePool(image)
    scores = Reshape(means, shape)
    moved = MatMul(scores, nothing)
    boxes = Add(moved, middle)
}
"""
"""A detector that finds one box, in the middle, of the class "red", "green" or "blue"."""

COLOUR_CARD = """
title = "Colours"
[inputs.image]
kind = "image"
shape = [1, 3, 32, 32]
layout = "NCHW"
colour = "RGB"
resize = "stretch"
std = [255, 255, 255]
[task]
kind = "detect"
decode = "ssd"
labels = ["red", "green", "blue"]
outputs = { boxes = "boxes", scores = "scores" }
"""


def parse(text: str) -> ir.Model:
    """The model that ``text`` describes, as the passes see one."""
    return ir.from_onnx_text(text)


def dense_network(folder: Path, width: int = 128) -> Path:
    """A Conv, a depthwise Conv, a Gemm and two MatMuls with seeded weights; the last MatMul is small."""
    rng = np.random.default_rng(0)
    shapes = {
        "conv": (width, 8, 3, 3),
        "depth": (width, 1, 8, 8),
        "dense": (width, width),
        "bias": (width,),
        "large": (width, width),
        "added": (width,),
        "small": (width, 3),
    }
    weights = {
        name: rng.normal(0, math.prod(shape[1:]) ** -0.5, shape).astype(np.float32)
        for name, shape in shapes.items()
    }
    nodes = [
        helper.make_node("Conv", ["x", "conv"], ["wide"], "wide", pads=[1] * 4),
        helper.make_node("Relu", ["wide"], ["bent"], "bent"),
        helper.make_node("Conv", ["bent", "depth"], ["deep"], "deep", group=width),
        helper.make_node("Flatten", ["deep"], ["flat"], "flat"),
        helper.make_node("Gemm", ["flat", "dense", "bias"], ["gemm"], "gemm", transB=1),
        helper.make_node("MatMul", ["gemm", "large"], ["product"], "product"),
        helper.make_node("Add", ["product", "added"], ["shifted"], "shifted"),
        helper.make_node("MatMul", ["shifted", "small"], ["y"], "y"),
    ]
    graph = helper.make_graph(
        nodes,
        "dense",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    path = folder / "dense.onnx"
    path.write_bytes(model.SerializeToString(deterministic=True))
    return path
