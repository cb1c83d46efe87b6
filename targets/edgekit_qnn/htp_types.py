"""The types that the NPU computes in: integers between Q/DQ pairs, float16 for everything else.

float32 is not among the NPU's types: https://docs.qualcomm.com/doc/80-63195-1/topic/
AI-hardware-cores-accelerators.html. The emulator computes some operators in it, more exactly than any device
would, and fails to compile others ("QNN_COMMON_ERROR_MEM_ALLOC 1002"): Elu, Gelu, HardSigmoid and Round in
any size, YOLOX-nano from 320 x 320 on, where 224 x 224 compiles. In float16 all of these compile.

In float16 the emulator's Sigmoid is off by up to 7.9e-4, 67.8 dB where rounding alone leaves 75.5; its Tanh
is as good as rounding. So a Sigmoid in float16 is written with Tanh: YOLOX-nano has 33.4 dB on a photograph,
19.1 without. Whether a device's Sigmoid is like the emulator's is not known.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from edgekit.compiler.lowering.average_by_conv import average_by_conv
from edgekit.compiler.lowering.fp16_types import FLOAT, set_types
from edgekit.compiler.model.rewriting import (
    PART_OF,
    add_constant,
    array_of,
    dims_of,
    input_of,
    int_of,
    ints_of,
    node_name,
    nodes_of,
)
from edgekit.diagnostics import Finding

PAIRS = ("QuantizeLinear", "DequantizeLinear")
FLOAT16_LIMIT = 65504.0
ABSORBED = ("Relu", "Clip")
"""A pair absorbs them into the range of the node before."""


def with_htp_types(model: ir.Model) -> tuple[ir.Model, list[str]]:
    """Return a copy of the canonical model in which every node is between Q/DQ pairs or computes in float16,
    and the names of the float16 nodes.

    Inputs and outputs keep their types. Constants beyond float16's range are limited to it: they are masks.
    """
    typed = model.clone()
    _store_unsigned(typed)
    _scale_by_channel(typed)
    for _, node in nodes_of(typed, "AveragePool"):
        if len(dims_of(node.inputs[0]) or ()) in (3, 4) and _is_uneven(node) and not _is_integer(node):
            average_by_conv(typed, node)
    for node in [node for node in typed.graph if node.op_type == "Sigmoid" and not node.domain]:
        if not _is_integer(node):
            _write_with_tanh(typed, node)
    chosen = [node for node in typed.graph if node.op_type not in PAIRS and not _is_integer(node)]
    for node in chosen:
        for index, value in enumerate(node.inputs):
            array = array_of(value)
            if value is None or array is None or array.dtype != np.float32 or not array.size:
                continue
            if np.abs(array).max() > FLOAT16_LIMIT:
                limited = np.clip(array, -FLOAT16_LIMIT, FLOAT16_LIMIT)
                constant = ir.val(f"{value.name}/limited/{node.name}/{index}", const_value=ir.tensor(limited))
                typed.graph.register_initializer(constant)
                node.replace_input_with(index, constant)
    names = [str(node.name) for node in chosen]
    set_types(typed, set(chosen))
    return typed, names


def _store_unsigned(model: ir.Model) -> None:
    """Store pairs of int8 activations as uint8, with a zero point 128 higher: the same numbers.

    The emulator's Pad of int8 is wrong; of uint8 it is right.
    """
    for _, node in nodes_of(model, "QuantizeLinear"):
        zero, stored = array_of(input_of(node, 2)), node.outputs[0]
        readers = [use.node for use in stored.uses()]
        zeros = [array_of(input_of(reader, 2)) for reader in readers]
        if zero is None or zero.dtype != np.int8 or not readers or stored.is_graph_output():
            continue
        if any(item is None for item in zeros) or any(r.op_type != "DequantizeLinear" for r in readers):
            continue
        for index, (item, zero_point) in enumerate([(node, zero), *zip(readers, zeros, strict=True)]):
            assert zero_point is not None
            unsigned = np.asarray(zero_point.astype(np.int16) + 128, np.uint8)
            item.replace_input_with(2, add_constant(model, unsigned, f"{stored.name}/unsigned/{index}"))
        if "output_dtype" in node.attributes:
            del node.attributes["output_dtype"]
        stored.type = ir.TensorType(ir.DataType.UINT8)


def _scale_by_channel(model: ir.Model) -> None:
    """Give weights of a Conv with one scale an equal scale per output channel: with a single scale, the
    emulator returns the least value everywhere."""
    for _, conv in nodes_of(model, "Conv"):
        weight = conv.inputs[1]
        node = None if weight is None else weight.producer()
        if node is None or node.op_type != "DequantizeLinear" or len(list(node.outputs[0].uses())) != 1:
            continue
        stored, scale, zero = (array_of(input_of(node, index)) for index in range(3))
        if stored is None or stored.dtype != np.int8 or scale is None or scale.size != 1:
            continue
        bias = input_of(conv, 2)
        if (zero is not None and zero.any()) or (bias is not None and bias.producer() is not None):
            continue  # the emulator computes an integer bias with one scale, and refuses many zero points
        channels = stored.shape[0]
        many = np.full(channels, scale.reshape(()), scale.dtype)
        zeros = np.zeros(channels, np.int8)
        node.resize_inputs(3)
        node.replace_input_with(1, add_constant(model, many, f"{node.outputs[0].name}/scales"))
        node.replace_input_with(2, add_constant(model, zeros, f"{node.outputs[0].name}/zeros"))
        node.attributes["axis"] = ir.AttrInt64("axis", 0)


def _is_uneven(node: ir.Node) -> bool:
    """Check for an average that the emulator gets wrong: other divisors at the borders, or zeros."""
    pads = ints_of(node, "pads")
    half = len(pads) // 2
    unequal = pads[:half] != pads[half:]
    return int_of(node, "ceil_mode", 0) == 1 or (int_of(node, "count_include_pad", 0) == 1 and unequal)


def refused_forms(model: ir.Model, target: str) -> list[Finding]:
    """Return a finding for each node that the emulator computes wrongly and that has no other form here."""
    findings = []
    for _, node in nodes_of(model, "AveragePool", "Conv"):
        pads, rank = ints_of(node, "pads"), len(dims_of(node.inputs[0]) or ()) - 2
        counts = int_of(node, "count_include_pad", 0) == 1
        cause = ""
        if node.op_type == "AveragePool" and _is_uneven(node) and _is_integer(node):
            cause = "on integers, an average with ceil_mode, or that counts unequal pads, is computed wrongly"
        elif node.op_type == "AveragePool" and rank == 3 and any(pads) and counts:
            cause = "an average over three axes that counts pads gives zeros"
        elif node.op_type == "Conv" and pads:
            kernel = (dims_of(node.inputs[1]) or ())[2:]
            steps = ints_of(node, "dilations") or [1] * rank
            reach = [(k - 1) * d + 1 for k, d in zip(kernel, steps, strict=False)]
            if any(pad >= r for pad, r in zip(pads, [*reach, *reach], strict=False)):
                cause = "a window that lies wholly in the pads is computed wrongly"
        if cause:
            text = f"on the emulator of onnxruntime-qnn 2.7.0 {cause}"
            findings.append(Finding("EK1002", "error", target, node_name(node), node.op_type, text))
    return findings


def _write_with_tanh(model: ir.Model, node: ir.Node) -> None:
    """Rewrite Sigmoid(x)  =>  Tanh(x / 2) / 2 + 1 / 2."""
    source, output = node.inputs[0], node.outputs[0]
    if source is None or output.dtype != FLOAT:
        return
    half = add_constant(model, np.array(0.5, np.float32), f"{output.name}/tanh/constant")
    nodes: list[ir.Node] = []
    value = source
    for op, name in (("Mul", "scaled"), ("Tanh", "tanh"), ("Mul", "halved"), ("Add", "")):
        inputs = [value] if op == "Tanh" else [value, half]
        full_name = f"{output.name}/{name}" if name else str(node.name)
        one = ir.node(op, inputs, name=full_name, num_outputs=1)
        one.metadata_props[PART_OF] = str(node.name)
        value = one.outputs[0]
        value.name, value.type, value.shape = full_name, output.type, output.shape
        nodes.append(one)
    model.graph.insert_before(node, nodes)
    of_output = str(output.name)
    output.replace_all_uses_with(value, replace_graph_outputs=True)
    model.graph.remove(node, safe=True)
    value.name = of_output


def _is_integer(node: ir.Node) -> bool:
    """Check that all float inputs are constants or come from pairs, and all float outputs go into pairs."""
    inputs = [value for value in node.inputs if value is not None and value.dtype == FLOAT]
    outputs = [value for value in node.outputs if value.dtype == FLOAT]
    if not inputs or not outputs:
        return False
    return _read_from_pairs(node) and all(_goes_into_pairs(value) for value in outputs)


def _read_from_pairs(node: ir.Node) -> bool:
    has_pairs = False
    for value in node.inputs:
        if value is None or value.dtype != FLOAT or array_of(value) is not None:
            continue
        producer = value.producer()
        if producer is None:
            return False
        absorbed = node.op_type in ABSORBED and producer.op_type not in PAIRS and _read_from_pairs(producer)
        if producer.op_type != "DequantizeLinear" and not absorbed:
            return False
        has_pairs = True
    return has_pairs


def _goes_into_pairs(value: ir.Value) -> bool:
    readers = [use.node for use in value.uses()]
    if not readers or value.is_graph_output():
        return False
    if len(readers) == 1 and readers[0].op_type in ABSORBED:
        return _goes_into_pairs(readers[0].outputs[0])
    return all(reader.op_type == "QuantizeLinear" for reader in readers)
