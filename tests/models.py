"""Small models, made in code: no test downloads one."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir
from onnx import parser


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

DETERMINANT = """
<ir_version: 8, opset_import: ["": 17]>
determinant (float[2,3,3] x) => (float[2] y)
{
    y = Det(x)
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
