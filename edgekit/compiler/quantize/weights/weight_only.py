"""Weight-only quantization: no samples are needed, and only weights have Q/DQ pairs.

    w (float32) -> op        =>        w (int8) -> DequantizeLinear -> op

The target says how its engine handles such weights (``quant_rules.WeightForm``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import onnx_ir as ir

from edgekit.compiler.evaluate.samples import Sample
from edgekit.compiler.lowering.fp16_weights import FP16_MIN_ELEMENTS
from edgekit.compiler.model.rewriting import array_of, int_of
from edgekit.compiler.quantize.placement.kernels import node_name, rule_of
from edgekit.compiler.quantize.placement.qdq_graph import emit
from edgekit.compiler.quantize.recipe import QuantizationPlan, Recipe
from edgekit.compiler.quantize.weights.optimize_weights import optimize
from edgekit.compiler.quantize.weights.value_digests import WeightCache
from edgekit.target.precisions import precision_of
from edgekit.target.quant_rules import Rules, WeightForm

FITTED = Recipe()
NEAREST = Recipe(rounding="nearest", bias_correction=False)
"""For builds without samples."""


def with_stored_weights(
    model: ir.Model,
    rules: Rules,
    form: WeightForm,
    samples: Sequence[Sample],
    cache: WeightCache | None = None,
) -> tuple[ir.Model, tuple[str, ...]]:
    """Return a copy of the model with the weights of a form in int8, symmetric, one scale for each output
    channel.

    Weights of fewer than FP16_MIN_ELEMENTS elements stay float: they save nothing and are the most sensitive.

    Args:
        samples: The calibration set; without samples weights are rounded to nearest.

    Returns:
        The model, and the names of the nodes with quantized weights. Palettes are found by the compiler, so
        for them the model is an unchanged copy.
    """
    # Only int8 activations use kernels that add in int16.
    limit = rules.pair_limit if precision_of(form.name).rounds_inputs else None
    rows = tuple(row for row in rules.ops if row.op in form.ops and row.weight is not None)
    weight_rules = replace(rules, ops=rows, pair_limit=limit, bias="float")
    names = tuple(node_name(node) for node in model.graph if _is_stored(node, weight_rules, form))
    if precision_of(form.name).from_table:
        return model.clone(), names
    plan = QuantizationPlan({}, frozenset(names))
    plan = optimize(model, plan, weight_rules, samples, FITTED if samples else NEAREST, cache)
    return emit(model, plan, weight_rules), names


def _is_stored(node: ir.Node, rules: Rules, form: WeightForm) -> bool:
    rule = rule_of(node, rules)
    if rule is None or rule.weight is None:
        return False
    if not form.grouped and int_of(node, "group", 1) != 1:
        return False
    array = array_of(node.inputs[rule.weight])
    return array is not None and array.size >= FP16_MIN_ELEMENTS
