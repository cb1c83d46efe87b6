"""Facts about a lowered graph for the report, and warnings for operators that leave the fast path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.rewriting import node_name
from edgekit.diagnostics import Finding
from edgekit.system.formats.plain_text import size
from edgekit.target.profile import Profile
from edgekit.tensor_spec import Json
from edgekit_tflite.builder import Builder
from edgekit_tflite.graph import Graph, Op
from edgekit_tflite.ops_shape import CONCATENATION_INPUTS

OUTSIDE_XNNPACK = frozenset(
    {
        "ARG_MAX", "ARG_MIN", "BITCAST", "BITWISE_XOR", "BROADCAST_TO", "CAST", "CUMSUM", "EQUAL",
        "FLOOR_DIV", "FLOOR_MOD", "GATHER", "GATHER_ND", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL",
        "LOCAL_RESPONSE_NORMALIZATION",
        "LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR", "MIRROR_PAD", "NOT_EQUAL", "PADV2", "POW", "REDUCE_PROD",
        "RESIZE_NEAREST_NEIGHBOR", "REVERSE_V2", "SCATTER_ND", "SELECT_V2", "SIGN", "SPLIT_V",
        "STRIDED_SLICE", "TILE", "TOPK_V2",
    }
)  # fmt: skip
"""Operators that the XNNPACK delegate of LiteRT 2.3 leaves to the plain kernels, measured over the
conformance cases; it also leaves int32 and bool, and CONCATENATION of more than CONCATENATION_INPUTS
operands."""

INT8_OUTSIDE_XNNPACK = frozenset({"MAXIMUM", "MINIMUM", "RELU", "RELU6", "RELU_N1_TO_1", "SOFTMAX"})
"""Operators that it takes in float32 and leaves in int8, measured one by one."""


SCALE_RATIOS = {
    "ADD": (2**-10, 2**8),
    "MUL": (2**-16, 2**8),
    "QUANTIZE": (2**-8, 2**8),
    "SUB": (2**-10, 2**8),
}
"""Input scale (for MUL the product) over output scale, as XNNPACK takes it: xnnpack/src/operators."""


def facts_of(builder: Builder, graph: Graph) -> dict[str, Json]:
    """Return facts about a compilation for the report.

    Returns:
        ``ops``: operator -> count; ``transposes`` and ``transposed_bytes``: data that is moved;
        ``outside_xnnpack``: operators on plain kernels. Where all kernels are plain, ``nodes``: operator
        and ONNX node of each, in the order of the file. For a model with Q/DQ pairs also ``tables``: nodes
        that are functions of one int8 number, stored as float operators that XNNPACK turns into a table;
        ``float_islands``: neighbouring nodes computed in float, the reason of the first one, and the bytes
        converted around them;
        ``requantizations``: where integers get another scale.
    """
    transposes = [
        {"node": op.node, "size_bytes": _size_bytes(graph, op), "why": op.reason}
        for op in graph.ops
        if op.code == "TRANSPOSE"
    ]
    facts: dict[str, Json] = {
        "ops": dict(sorted(Counter(op.code for op in graph.ops).items())),
        "transposes": transposes,
        "transposed_bytes": sum(row["size_bytes"] for row in transposes),
        "outside_xnnpack": [
            {"node": op.node, "op": _titled(graph, op)} for op in graph.ops if _leaves_xnnpack(graph, op)
        ],
    }
    if builder.plain:
        facts["nodes"] = [[op.code, op.node] for op in graph.ops]
    if builder.plan.forms or builder.plan.float_reasons:
        facts["tables"] = [node_name(node) for node, form in builder.plan.forms.items() if form.table]
        facts["float_islands"] = list(_float_regions(builder, graph))
        facts["requantizations"] = [
            {"node": node, "why": cause} for node, cause in builder.requantized_nodes if _is_left(graph, node)
        ]
    return facts


def warnings_of(builder: Builder, graph: Graph, profile: Profile) -> list[Finding]:
    """Return warnings of slow paths: plain kernels, moved data, floats between integers, other scales."""
    findings = []
    for op in graph.ops:
        if op.code == "TRANSPOSE":
            text = f"{size(_size_bytes(graph, op))} are transposed: {op.reason}"
            findings.append(Finding("EK1102", "warning", profile.name, op.node, op.code, text))
        elif _leaves_xnnpack(graph, op):
            text = f"XNNPACK does not support {_titled(graph, op)}; a plain kernel runs it"
            findings.append(Finding("EK1101", "warning", profile.name, op.node, op.code, text))
    facts = facts_of(builder, graph)
    for row in facts.get("float_islands", ()):
        more = len(row["nodes"]) - 1
        subject = "it is" if not more else f"it and {more} more behind it are"
        text = f"{subject} computed in float between integers: {row['why']}"
        findings.append(Finding("EK1105", "warning", profile.name, row["node"], row["op"], text))
    for row in facts.get("requantizations", ()):
        text = f"integers are given another scale, by a QUANTIZE of their own: {row['why']}"
        findings.append(Finding("EK1106", "warning", profile.name, row["node"], "", text))
    return findings


def _float_regions(builder: Builder, graph: Graph) -> Iterator[dict[str, Json]]:
    """Yield groups of neighbouring nodes computed in float; the first node is the cause of the others."""
    converted: Counter[str] = Counter()
    for op in graph.ops:
        made_by = [graph.tensors[t].producer for t in op.inputs if t >= 0]
        for index in made_by:
            if index is not None and graph.ops[index].code == "DEQUANTIZE":
                converted[op.node] += _size_bytes(graph, graph.ops[index])
            if index is not None and op.code == "QUANTIZE":
                converted[graph.ops[index].node] += _size_bytes(graph, graph.ops[index])
    computing = {op.node for op in graph.ops if op.code not in ("DEQUANTIZE", "QUANTIZE")}
    for nodes in _neighbours(list(builder.plan.float_reasons)):
        members = [node for node in nodes if node_name(node) in computing]
        if not members:
            continue
        first, names = members[0], [node_name(node) for node in members]
        yield {
            "node": names[0],
            "op": first.op_type,
            "why": builder.plan.float_reasons[first],
            "nodes": names,
            "converted_bytes": sum(converted[name] for name in names),
        }


def _neighbours(nodes: Sequence[ir.Node]) -> Iterator[list[ir.Node]]:
    leader = {node: node for node in nodes}

    def lead(node: ir.Node) -> ir.Node:
        while leader[node] is not node:
            leader[node] = leader[leader[node]]
            node = leader[node]
        return node

    for node in nodes:
        for value in node.inputs:
            maker = None if value is None else value.producer()
            if maker in leader:
                leader[lead(node)] = lead(maker)
    groups: dict[ir.Node, list[ir.Node]] = {}
    for node in nodes:
        groups.setdefault(lead(node), []).append(node)
    yield from groups.values()


def _is_left(graph: Graph, node: str) -> bool:
    return any(op.code == "QUANTIZE" and op.node == node for op in graph.ops)


def _leaves_xnnpack(graph: Graph, op: Op) -> bool:
    dtype = graph.tensors[op.outputs[0]].dtype
    if op.code == "CONCATENATION" and len(op.inputs) > CONCATENATION_INPUTS:
        return True
    if op.code in OUTSIDE_XNNPACK or (dtype in ("int32", "bool") and op.code != "RESHAPE"):
        return True
    return dtype in ("int8", "uint8") and not _in_xnnpack(graph, op)


def _in_xnnpack(graph: Graph, op: Op) -> bool:
    out = graph.tensors[op.outputs[0]]
    source = graph.tensors[op.inputs[0]]
    if op.code == "QUANTIZE" and source.dtype != out.dtype:
        return source.dtype == "float32"
    scales = [t.quantization.scale[0] for i in op.inputs if (t := graph.tensors[i]).quantization is not None]
    if op.code in SCALE_RATIOS and out.quantization is not None and scales:
        ratios = [prod(scales)] if op.code == "MUL" else scales
        low, high = SCALE_RATIOS[op.code]
        return all(low <= ratio / out.quantization.scale[0] < high for ratio in ratios)
    return op.code not in INT8_OUTSIDE_XNNPACK


def _titled(graph: Graph, op: Op) -> str:
    if op.code in OUTSIDE_XNNPACK:
        return op.code
    if op.code == "CONCATENATION" and len(op.inputs) > CONCATENATION_INPUTS:
        return f"{op.code} of {len(op.inputs)}"
    return f"{op.code} of {graph.tensors[op.outputs[0]].dtype}"


def _size_bytes(graph: Graph, op: Op) -> int:
    tensor = graph.tensors[op.outputs[0]]
    return prod(tensor.shape) * np.dtype(tensor.dtype).itemsize
