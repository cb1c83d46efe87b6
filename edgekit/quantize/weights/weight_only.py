"""Weights alone stored as integers: no sample is needed, and the pairs stand before weights only.

    w (float32) -> op        =>        w (int8) -> DequantizeLinear -> op

What an engine does with such a weight is the target's to say (``rules.WeightForm``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import onnx_ir as ir

from edgekit.evaluate.samples import Sample
from edgekit.lowering.fp16_weights import FP16_MIN_ELEMENTS
from edgekit.model.rewriting import array_of, int_of
from edgekit.quantize.placement.kernels import node_name, rule_of
from edgekit.quantize.placement.qdq_graph import emit
from edgekit.quantize.recipe import QuantizationPlan, Recipe
from edgekit.quantize.weights.optimize_weights import optimize
from edgekit.quantize.weights.value_digests import WeightCache
from edgekit.target.quant_rules import PALETTES, Rules, WeightForm

FITTED = Recipe()
NEAREST = Recipe(rounding="nearest", bias_correction=False)
"""Where there are no samples to fit on."""


def with_stored_weights(
    model: ir.Model,
    rules: Rules,
    form: WeightForm,
    samples: Sequence[Sample],
    memo: WeightCache | None = None,
) -> tuple[ir.Model, tuple[str, ...]]:
    """A copy of the model with the weights of a form in int8, symmetric, one scale for each output channel.

    Weights of fewer than HALF_MIN_ELEMENTS elements stay float: they save nothing, and hurt most.

    Args:
        model: The canonical float graph. It is not changed.
        rules: Of the target.
        form: One of ``rules.weight_forms``.
        samples: To fit the rounding on; with none each weight is rounded to nearest.
        memo: What earlier calls found; what is found now is added.

    Returns:
        The model, and the names of the nodes whose weights are stored. A palette is the compiler's to find:
        for that the model is as it was.

    Raises:
        EngineError: ONNX Runtime cannot run a node.
    """
    # Kernels that add in int16 only meet weights that are multiplied as integers.
    limit = rules.pair_limit if form.name == "int8-dynamic" else None
    rows = tuple(row for row in rules.ops if row.op in form.ops and row.weight is not None)
    own = replace(rules, ops=rows, pair_limit=limit, bias="float")
    names = tuple(node_name(node) for node in model.graph if _is_stored(node, own, form))
    if form.name in PALETTES:
        return model.clone(), names
    plan = QuantizationPlan({}, frozenset(names))
    plan = optimize(model, plan, own, samples, FITTED if samples else NEAREST, memo)
    return emit(model, plan, own), names


def _is_stored(node: ir.Node, rules: Rules, form: WeightForm) -> bool:
    rule = rule_of(node, rules)
    if rule is None or rule.weight is None:
        return False
    if not form.grouped and int_of(node, "group", 1) != 1:
        return False
    array = array_of(node.inputs[rule.weight])
    return array is not None and array.size >= FP16_MIN_ELEMENTS
