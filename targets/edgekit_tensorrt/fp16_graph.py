"""fp16 for strongly typed networks: types in the graph, with explicit casts.

    Conv -> Relu -> Conv -> Sigmoid => y        all float32
    Cast -> Conv -> Relu -> Conv -> Cast -> Sigmoid => y
            `---- weights and activations in float16 ---'

TensorRT 11 has removed precision flags, and 10.x ignores them on a strongly typed network: a tensor is
computed in its type in the file. These stay in float32:

- the nodes after the last op with weights: boxes of 400 pixels move by a quarter of one in float16, and
  these ops are cheap;
- ops whose result or inner sum leaves float16's range or digits (``FLOAT32_OPS``);
- ops with a constant that float16 cannot hold: beyond 65504, or an epsilon below its normal numbers;
- a Conv whose sums cancel, with the nodes that compute its input (``BIAS_LIMIT``);
- Q/DQ pairs with a scale below its normal numbers, and their readers;
- inputs and outputs of the graph: they keep the types of the source model.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from edgekit.compiler.lowering.fp16_types import FLOAT, set_types, takes_fp16
from edgekit.compiler.model.rewriting import array_of
from edgekit.tensor_spec import Array

WEIGHTED_OPS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul", "LSTM", "GRU", "RNN"})
FLOAT32_OPS = frozenset(
    {
        *("Exp", "Log", "Pow", "Reciprocal", "Sqrt", "Softplus", "Sinh", "Cosh", "Tan", "Erf", "CumSum"),
        *("LayerNormalization", "RMSNormalization", "GroupNormalization", "InstanceNormalization"),
        *("BatchNormalization", "MeanVarianceNormalization", "LpNormalization", "LRN", "LpPool"),
        *("ReduceSum", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", "GlobalLpPool"),
        *("ReduceLogSum", "ReduceLogSumExp", "LSTM", "GRU", "RNN", "NonMaxSuppression", "Range", "Cast"),
    }
)
"""Sums of squares, powers and states that are carried on: float16 ends at 65504 and has 11 bits."""
HALF_LIMIT = 65504.0
HALF_SMALLEST_NORMAL = 2.0**-14
"""IEEE 754 binary16: below it, bits of the fraction are lost."""
BIAS_LIMIT = 64.0
"""A larger bias is there to cancel sums as large, and float16 rounds each by up to 1/32. Measured on
YOLOX-nano, whose Conv_47 adds 76: 35.5 dB with it and its input in float16, 42.8 dB without. Four other
models have none above 46."""
QUANTIZATION_OPS = ("QuantizeLinear", "DequantizeLinear")


def with_fp16_arithmetic(model: ir.Model) -> ir.Model:
    """Return a copy of the canonical model with inner types in float16, by the module's rules."""
    fp16 = model.clone()
    _round_scales(fp16)
    _separate_readers(fp16)
    chosen = _chosen(fp16)
    if chosen:
        set_types(fp16, chosen)
    return fp16


def has_fp16_digits(array: Array) -> bool:
    """Check that every number is zero or a normal float16 number.

    >>> has_fp16_digits(np.float32([0, 1e-3, 6e4])), has_fp16_digits(np.float32([1e-6]))
    (True, False)
    """
    sizes = np.abs(array[array != 0])
    return bool(((sizes >= HALF_SMALLEST_NORMAL) & (sizes <= HALF_LIMIT)).all())


def _round_scales(model: ir.Model) -> None:
    """Round scales that float16 can hold, for float32 pairs too: Q and DQ must agree to the bit."""
    for node in model.graph:
        if node.op_type in QUANTIZATION_OPS:
            scale = node.inputs[1]
            array = array_of(scale)
            if scale is None or array is None or scale.dtype != FLOAT or not has_fp16_digits(array):
                continue
            scale.const_value = ir.tensor(array.astype(np.float16).astype(np.float32), name=scale.name)


def _separate_readers(model: ir.Model) -> None:
    """Give each reader its own DequantizeLinear, which then has the type that its reader computes in."""
    for node in list(model.graph):
        if node.op_type != "DequantizeLinear":
            continue
        uses = list(node.outputs[0].uses())
        for number, use in enumerate(uses[1:] if not node.outputs[0].is_graph_output() else uses, 1):
            twin = ir.node(
                node.op_type, node.inputs, dict(node.attributes), name=f"{node.name}/{number}", num_outputs=1
            )
            built, source = twin.outputs[0], node.outputs[0]
            built.name, built.type, built.shape = f"{source.name}/{number}", source.type, source.shape
            model.graph.insert_after(node, twin)
            use.node.replace_input_with(use.idx, built)


def _chosen(model: ir.Model) -> set[ir.Node]:
    before_weights: set[ir.Node] = set()
    for node in reversed(list(model.graph)):
        read = (use.node for output in node.outputs for use in output.uses())
        if node.op_type in WEIGHTED_OPS or any(reader in before_weights for reader in read):
            before_weights.add(node)
    chosen = {node for node in before_weights if _may_be_fp16(node)}
    for node in list(chosen):
        bias = array_of(node.inputs[2]) if node.op_type == "Conv" and len(node.inputs) > 2 else None
        if bias is not None and np.abs(bias).max(initial=0.0) > BIAS_LIMIT:
            chosen -= {node, *_producers(node)}
    # A pair's type is that of the nodes around it; one that must be float32 takes its readers along.
    for node in model.graph:
        if node.op_type == "DequantizeLinear":
            reader = next((use.node for use in node.outputs[0].uses()), None)
            if not _has_fp16_scale(node):
                chosen.discard(node)
                chosen -= {reader}
    for node in model.graph:
        if node.op_type in QUANTIZATION_OPS and node in chosen and not _around(node) & chosen:
            chosen.discard(node)
    return chosen


def _producers(node: ir.Node) -> set[ir.Node]:
    """Return the nodes that compute the input of a node, back to the previous op with weights."""
    producers: set[ir.Node] = set()
    waiting = [node.inputs[0]]
    while waiting:
        value = waiting.pop()
        producer = value.producer() if value is not None else None
        if producer is not None and producer not in producers:
            producers.add(producer)
            if producer.op_type not in WEIGHTED_OPS:
                waiting += producer.inputs
    return producers


def _around(node: ir.Node) -> set[ir.Node]:
    """Return the readers of a DequantizeLinear, or the producer of a QuantizeLinear's input."""
    if node.op_type == "DequantizeLinear":
        return {use.node for use in node.outputs[0].uses()}
    producer = node.inputs[0].producer() if node.inputs[0] is not None else None
    return {producer} if producer is not None else set()


def _may_be_fp16(node: ir.Node) -> bool:
    if node.domain or node.op_type in FLOAT32_OPS or _has_subgraph(node):
        return False
    if node.op_type in QUANTIZATION_OPS:
        return _has_fp16_scale(node)
    floats = [index for index, value in enumerate(node.inputs) if value is not None and value.dtype == FLOAT]
    if not any(takes_fp16(node, index) for index in floats):
        return False
    for value in node.inputs:
        array = array_of(value)
        if array is None or array.dtype != np.float32 or not array.size:
            continue
        # Large weights may hold a few numbers that round to zero; a lone constant is a factor or an epsilon.
        if np.abs(array).max() > HALF_LIMIT:
            return False
        if node.op_type not in WEIGHTED_OPS and not has_fp16_digits(array):
            return False
    return True


def _has_fp16_scale(node: ir.Node) -> bool:
    scale = array_of(node.inputs[1])
    return scale is not None and has_fp16_digits(scale)


def _has_subgraph(node: ir.Node) -> bool:
    kinds = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    return any(attribute.type in kinds for attribute in node.attributes.values())
