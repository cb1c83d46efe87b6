"""The canonical graph with Q/DQ pairs in float8 (E4M3), placed where int8's would be.

float8 has its own exponent, so a scale only has to bring the largest value to the end of the range; there is
no zero point, no search for a range, and rounding to nearest.

E4M3: https://arxiv.org/abs/2209.05433; ONNX's form: https://onnx.ai/onnx/technical/float8.html
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import ml_dtypes
import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.rewriting import array_of
from edgekit.compiler.quantize.numerics import SMALLEST_SCALE
from edgekit.compiler.quantize.observe.observers import Observation
from edgekit.compiler.quantize.placement.kernels import node_name, rule_of
from edgekit.compiler.quantize.placement.qdq_graph import emit
from edgekit.compiler.quantize.placement.qdq_placement import place
from edgekit.compiler.quantize.recipe import Affine, QuantizationPlan, QuantizedWeights, Recipe
from edgekit.target.quant_rules import Rules
from edgekit.tensor_spec import Array

LARGEST = 448.0
"""Of E4M3."""
INT8_LARGEST = 127
RECIPE = Recipe(ranges="minmax", rounding="nearest", bias_correction=False)


def with_float8_pairs(
    model: ir.Model, rules: Rules, observations: Mapping[str, Observation]
) -> tuple[ir.Model, QuantizationPlan]:
    """Return a copy of the model with pairs, and its plan.

    Args:
        rules: Rules of a target with symmetric int8, whose scales reach the largest value seen.
    """
    plan = place(model, rules, observations, RECIPE)
    weights = {}
    for node in model.graph:
        rule = rule_of(node, rules)
        if node_name(node) in plan.nodes and rule is not None and rule.weight is not None:
            array = array_of(node.inputs[rule.weight])
            assert array is not None  # the row matches only if it is a constant
            weights[node_name(node)] = _weights(array, rule.weight_axis)
    activations = {name: _activation(affine) for name, affine in plan.activations.items()}
    plan = replace(plan, activations=activations, weights=weights)
    return emit(model, plan, rules), plan


def _activation(affine: Affine) -> Affine:
    scale = np.asarray(affine.scale * np.float32(INT8_LARGEST / LARGEST), np.float32)
    return _affine(scale, affine.axis)


def _weights(array: Array, axis: int | None) -> QuantizedWeights:
    others = tuple(other for other in range(array.ndim) if other != axis)
    largest = np.abs(array).max(axis=others, initial=0.0)
    scale = np.where(largest > 0, np.maximum(largest / LARGEST, SMALLEST_SCALE), 1.0).astype(np.float32)
    along = scale if axis is None else scale.reshape([-1 if k == axis else 1 for k in range(array.ndim)])
    stored = np.clip(array / along, -LARGEST, LARGEST).astype(ml_dtypes.float8_e4m3fn)
    return QuantizedWeights(stored, _affine(scale, axis), None)


def _affine(scale: Array, axis: int | None) -> Affine:
    return Affine(scale, np.zeros(scale.shape, ml_dtypes.float8_e4m3fn), "float8e4m3fn", axis)
