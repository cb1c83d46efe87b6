"""Rules for plain integer kernels, without XNNPACK: TFLite Micro and Ethos-U.

They are like integer_rules.py, but ignore speed: any operator with an integer kernel runs on it. There, a
function of one number is a table that XNNPACK makes of float operators; here those would run in float.

Sources: https://github.com/tensorflow/tflite-micro/tree/main/tensorflow/lite/micro/kernels, and what vela's
"supported operators" lists: https://gitlab.arm.com/artificial-intelligence/ethos-u/ethos-u-vela
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from edgekit_tflite.graph import TensorQuantization
from edgekit_tflite.integer_rules import (
    COARSEST,
    FIXED,
    RULES,
    Form,
    InFloat,
    Quantizations,
    Rule,
    data_of,
    need_following_pair,
    need_integers,
    own_scale,
)
from edgekit_tflite.pairs import CLAMPS, clip_bounds, following_quantization, is_constant, per_tensor

CLIPS = ((0.0, None), (0.0, 6.0), (-1.0, 1.0))
"""Bounds that an operator of TFLite has: RELU, RELU6, RELU_N1_TO_1."""

WIDE = TensorQuantization((1 / 65536,), (-32768,))
"""Of a SOFTMAX from int8 to int16: tensorflow/lite/micro/kernels/softmax_common.cc."""


def _fixed(node: ir.Node, quantizations: Quantizations) -> Form:
    """Use the scale that the specification fixes; another one after it takes a requantization."""
    need_integers(node, quantizations)
    need_following_pair(node.outputs[0])
    return Form(FIXED[node.op_type])


def _softmax(node: ir.Node, quantizations: Quantizations) -> Form:
    """Use the scale that the specification fixes; for another one 16 bits, which the next pair rounds."""
    form = _fixed(node, quantizations)
    return form if need_following_pair(node.outputs[0]) == form.output else Form(WIDE, dtype="int16")


def _clamps(node: ir.Node, quantizations: Quantizations) -> Form:
    """Clamp as with XNNPACK, but use a kernel instead of a table if TFLite has these bounds."""
    form = RULES[node.op_type](node, quantizations)
    if not form.table:
        return form
    bounds = clip_bounds(node)
    if bounds is None or bounds not in CLIPS:
        return form
    return Form(form.output)


def _arithmetic(node: ir.Node, quantizations: Quantizations) -> Form:
    form = own_scale(node, quantizations)
    for value in node.inputs:
        maker = value.producer() if value is not None and is_constant(value) else None
        if value is not None and is_constant(value) and (maker is None or per_tensor(maker) is None):
            return RULES[node.op_type](node, quantizations)
    if len(data_of(node)) == 1 and following_quantization(node.outputs[0]) is None:
        raise InFloat("its result is read in float")
    if node.op_type != "Mul" and form.output is not None:
        steps = [_step(v, quantizations) for v in node.inputs if v is not None]
        if max(steps) / form.output.scale[0] >= COARSEST:
            return RULES[node.op_type](node, quantizations)
    return form


def _step(value: ir.Value, quantizations: Quantizations) -> float:
    maker = value.producer()
    quantization: TensorQuantization | None = quantizations.get(value)
    if quantization is None and maker is not None:
        quantization = per_tensor(maker)
    return float(np.inf) if quantization is None else quantization.scale[0]


PLAIN_RULES: Mapping[str, Rule] = {
    **RULES,
    **dict.fromkeys(CLAMPS, _clamps),
    **dict.fromkeys(("Sigmoid", "Tanh"), _fixed),
    "Softmax": _softmax,
    **dict.fromkeys(("Add", "Mul", "Sub"), _arithmetic),
    "HardSwish": own_scale,
}
"""ONNX op -> its rule. What is not here is computed in float."""
