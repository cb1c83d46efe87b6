"""Plan of a model with Q/DQ pairs: integer kernels with their scales, and reasons for nodes left in float.

    DequantizeLinear -> op [-> Relu or Clip] -> QuantizeLinear        one int8 kernel
    DequantizeLinear -> op that only moves data                       the same numbers, moved as integers

The scales are the model's own. A node outside the plan is computed in float between DEQUANTIZE and
QUANTIZE, which its pairs express, and ``float_reasons`` has the reason. Nothing is emitted here.

Scales of each operator: https://ai.google.dev/edge/litert/models/quantization_spec
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from edgekit_tflite.graph import TensorQuantization
from edgekit_tflite.integer_rules import INDICES, RULES, Form, InFloat, Rule, data_of
from edgekit_tflite.pairs import MOVES_STORED, PAIR, is_constant, per_tensor


@dataclass
class IntegerPlan:
    """Plan of the nodes and values that are computed on integers.

    Attributes:
        float_reasons: Float node -> the reason, in a model that has pairs.
        shifted: uint8 values that are held as int8, less 128; only their pairs read them.
        stored: int8 graph inputs and values moved from them -> their quantization.
        fused: Nodes that are fused into another node, such as a bias.
        as_int8: Float values that are held as int8 -> their quantization.
    """

    forms: dict[ir.Node, Form] = field(default_factory=dict)
    float_reasons: dict[ir.Node, str] = field(default_factory=dict)
    shifted: set[ir.Value] = field(default_factory=set)
    stored: dict[ir.Value, TensorQuantization] = field(default_factory=dict)
    fused: set[ir.Node] = field(default_factory=set)
    as_int8: dict[ir.Value, TensorQuantization] = field(default_factory=dict)


def plan_integers(graph: ir.Graph, rules: Mapping[str, Rule] = RULES) -> IntegerPlan:
    """Plan a canonical graph by one rule per operator; empty if no activation is quantized."""
    plan = IntegerPlan()
    if not any(_is_pair(node) for node in graph):
        return plan
    for node in graph:
        quantization = per_tensor(node) if node.op_type in PAIR else None
        if node.op_type == "DequantizeLinear" and quantization is not None:
            plan.as_int8[node.outputs[0]] = quantization
            _trace_stored(plan, node, quantization)
        elif _is_pair(node) and quantization is None:
            plan.float_reasons[node] = "it is not an 8-bit pair with one scale"
        elif node.op_type not in PAIR and node not in plan.fused and _reads_floats(node):
            _plan_node(plan, node, rules)
    return plan


def _is_pair(node: ir.Node) -> bool:
    return node.op_type in PAIR and node.inputs[0] is not None and node.inputs[0].const_value is None


def _reads_floats(node: ir.Node) -> bool:
    return any(v is not None and v.dtype == ir.DataType.FLOAT and not is_constant(v) for v in node.inputs)


def _trace_stored(plan: IntegerPlan, node: ir.Node, quantization: TensorQuantization) -> None:
    """Record the quantization of the integers that ``node`` dequantizes, back to their producer."""
    value = node.inputs[0]
    path = []
    while value is not None:
        path.append(value)
        maker = value.producer()
        if maker is None or maker.op_type not in MOVES_STORED:
            break
        value = maker.inputs[0]
    if value is None or value.const_value is not None:
        return
    maker = value.producer()
    if maker is None:
        for passed in path:
            plan.stored.setdefault(passed, quantization)
    elif maker.op_type == "QuantizeLinear" and value.dtype == ir.DataType.UINT8 and _only_paired(value):
        plan.shifted.update(path)


def _only_paired(value: ir.Value) -> bool:
    """Check that only DequantizeLinear reads ``value``, directly or after data movement."""
    if value.is_graph_output():
        return False
    return all(
        per_tensor(node) is not None
        if node.op_type == "DequantizeLinear"
        else node.op_type in MOVES_STORED and all(_only_paired(o) for o in node.outputs)
        for node, _ in value.uses()
    )


def _plan_node(plan: IntegerPlan, node: ir.Node, rules: Mapping[str, Rule]) -> None:
    try:
        form = rules[node.op_type](node, plan.as_int8)
    except KeyError:
        plan.float_reasons[node] = f"EdgeKit has no integer kernel for {node.op_type}"
        return
    except InFloat as error:
        plan.float_reasons[node] = str(error)
        return
    plan.forms[node] = form
    outputs = list(node.outputs)
    if form.bias is not None:
        ((adder, _),) = node.outputs[0].uses()
        plan.fused.add(adder)
        plan.forms[adder] = Form()
        outputs += adder.outputs
    if node.op_type not in INDICES:
        output = form.output or plan.as_int8[data_of(node)[0]]
        plan.as_int8.update(dict.fromkeys(outputs, output))
