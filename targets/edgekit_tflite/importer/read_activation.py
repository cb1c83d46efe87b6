"""Activations and normalizations: the inverse of ops_activation.py and ops_norm.py."""

from __future__ import annotations

from edgekit_tflite.graph import Op
from edgekit_tflite.importer.onnx_graph import OnnxGraph, UnreadableError
from edgekit_tflite.importer.readers import BOUNDS, activated, need_rank, reads, reads_as

L2_EPSILON = 1e-6
"""The least norm of L2_NORMALIZATION (tensorflow/lite/kernels/internal/reference/l2normalization.h)."""


reads_as({"ELU": "Elu", "HARD_SWISH": "HardSwish", "LOGISTIC": "Sigmoid", "RELU": "Relu", "TANH": "Tanh"})
reads_as({"PRELU": "PRelu"}, inputs=2)  # the slopes have the data's order of axes
reads_as({"LOG_SOFTMAX": "LogSoftmax"}, axis=-1)


@reads(*BOUNDS)
def clipped(g: OnnxGraph, op: Op) -> None:
    """Convert the operator to Clip."""
    bounds = [g.number(bound, op.inputs[0]) for bound in BOUNDS[op.code]]
    g.set(op.outputs[0], g.node("Clip", [g.value(op.inputs[0]), *bounds]))


@reads("LEAKY_RELU")
def leaky_relu(g: OnnxGraph, op: Op) -> None:
    """LeakyRelu."""
    g.set(op.outputs[0], g.node("LeakyRelu", [g.value(op.inputs[0])], alpha=op.options["alpha"]))


@reads("GELU")
def gelu(g: OnnxGraph, op: Op) -> None:
    """Convert the operator to Gelu, by erf or by tanh."""
    approximate = "tanh" if op.options["approximate"] else "none"
    g.set(op.outputs[0], g.node("Gelu", [g.value(op.inputs[0])], approximate=approximate))


@reads("SOFTMAX")
def softmax(g: OnnxGraph, op: Op) -> None:
    """Convert the operator to Softmax along the last axis, with beta as a factor before it."""
    x, beta = g.value(op.inputs[0]), op.options["beta"]
    x = x if beta == 1.0 else g.node("Mul", [x, g.number(beta, op.inputs[0])])
    g.set(op.outputs[0], g.node("Softmax", [x], axis=-1))


@reads("L2_NORMALIZATION")
def l2_normalization(g: OnnxGraph, op: Op) -> None:
    """x / max(|x|, 1e-6), along the last axis."""
    x = g.value(op.inputs[0])
    norm = g.node("ReduceL2", [x, g.int64([-1])], keepdims=1)
    divisor = g.node("Max", [norm, g.number(L2_EPSILON, op.inputs[0])])
    g.set(op.outputs[0], activated(g, g.node("Div", [x, divisor])))


@reads("LOCAL_RESPONSE_NORMALIZATION")
def local_response_normalization(g: OnnxGraph, op: Op) -> None:
    """LRN; ONNX divides the sum by the window's size, TFLite does not."""
    need_rank(g, op.inputs[0], 4)
    size = 2 * op.options["radius"] + 1
    if size < 1:
        raise UnreadableError(op, f"its radius is {op.options['radius']}")
    y = g.node(
        "LRN", [g.nchw(g.value(op.inputs[0]))], size=size, alpha=op.options["alpha"] * size,
        beta=op.options["beta"], bias=op.options["bias"],
    )  # fmt: skip
    g.set(op.outputs[0], g.nhwc(y))
