"""Pools: the inverse of ops_pool.py."""

from __future__ import annotations

from typing import Any

from edgekit_tflite.graph import Op
from edgekit_tflite.importer.onnx_graph import OnnxGraph
from edgekit_tflite.importer.read_conv import same_pads
from edgekit_tflite.importer.readers import activated, need_rank, reads


def _pooled(g: OnnxGraph, value: str, op_type: str, **attributes: Any) -> str:
    """One pool of a value N, C, H, W."""
    options = g.op.options
    _, height, width, _ = need_rank(g, g.op.inputs[0], 4)
    kernel = [options["filter_height"], options["filter_width"]]
    strides = [options["stride_h"], options["stride_w"]]
    pads = same_pads(g, (height, width), kernel, strides, (1, 1))
    return g.node(op_type, [value], kernel_shape=kernel, strides=strides, pads=pads, **attributes)


@reads("MAX_POOL_2D")
def max_pool_2d(g: OnnxGraph, op: Op) -> None:
    """MaxPool."""
    y = _pooled(g, g.nchw(g.value(op.inputs[0])), "MaxPool")
    g.set(op.outputs[0], g.nhwc(activated(g, y)))


@reads("AVERAGE_POOL_2D")
def average_pool_2d(g: OnnxGraph, op: Op) -> None:
    """AveragePool; what is padded is not counted."""
    y = _pooled(g, g.nchw(g.value(op.inputs[0])), "AveragePool", count_include_pad=0)
    g.set(op.outputs[0], g.nhwc(activated(g, y)))


@reads("L2_POOL_2D")
def l2_pool_2d(g: OnnxGraph, op: Op) -> None:
    """sqrt(mean(x^2))."""
    x = g.nchw(g.value(op.inputs[0]))
    y = g.node("Sqrt", [_pooled(g, g.node("Mul", [x, x]), "AveragePool", count_include_pad=0)])
    g.set(op.outputs[0], g.nhwc(activated(g, y)))
