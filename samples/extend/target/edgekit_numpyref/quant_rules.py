"""Operators that the reference evaluator gets as integers: Conv, Gemm and MatMul with constant weights."""

from __future__ import annotations

from edgekit.target.quant_rules import Fusion, OpRule, Rules

SOURCE = "https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html"

OPS = (
    OpRule("Conv", "own", SOURCE, inputs=(0,), weight=1, weight_axis=0, bias=2),
    OpRule("Gemm", "own", SOURCE, (0,), weight=1, weight_axis=0, bias=2, where=(("transB", (1,)),)),
    OpRule("Gemm", "own", SOURCE, (0,), weight=1, weight_axis=1, bias=2, where=(("transB", (0,)),)),
    OpRule("MatMul", "own", SOURCE, (0,), weight=1, weight_axis=1, weight_ranks=(2,)),
    OpRule("MaxPool", "inputs", SOURCE, (0,)),
)
FUSIONS = (Fusion((("Conv", "Gemm"), ("Relu",)), SOURCE),)


def rules(profile):
    return Rules(profile.name, activations="int8", symmetric=False, ops=OPS, fusions=FUSIONS)
