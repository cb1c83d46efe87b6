"""Canonical model -> model.tflite: lower, drop what nobody reads, pack.

Checking a model is lowering it and looking at what came out, so that what is said to be supported and what is
lowered cannot differ.
"""

from __future__ import annotations

from collections import Counter
from math import prod

import numpy as np
import onnx_ir as ir

from edgekit.errors import UnsupportedError
from edgekit.findings import Finding, as_lines, errors
from edgekit.lowering import Inexpressible, opset_of
from edgekit.profile import Profile
from edgekit.target import Artifact, Json
from edgekit_tflite import (  # noqa: F401  (importing the ops fills the table)
    ops_activation,
    ops_conv,
    ops_index,
    ops_logic,
    ops_math,
    ops_matmul,
    ops_norm,
    ops_pool,
    ops_quant,
    ops_reduce,
    ops_resize,
    ops_shape,
)
from edgekit_tflite.builder import Builder, lower
from edgekit_tflite.flatbuffer import SIGNATURE, pack
from edgekit_tflite.graph import Graph, Op
from edgekit_tflite.integer import plan_integers
from edgekit_tflite.ops_shape import CONCATENATION_INPUTS
from edgekit_tflite.quant_rules import rules as quantization_rules  # noqa: F401  (part of the contract)
from edgekit_tflite.values import static_shape

PRECISIONS = ("fp32", "fp16")
FILE = "model.tflite"

OUTSIDE_XNNPACK = frozenset(
    {
        "ARG_MAX", "ARG_MIN", "BROADCAST_TO", "CAST", "CUMSUM", "EQUAL", "FLOOR_DIV", "FLOOR_MOD", "GATHER",
        "GATHER_ND", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "LOCAL_RESPONSE_NORMALIZATION",
        "LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR", "MIRROR_PAD", "NOT_EQUAL", "PADV2", "POW", "REDUCE_PROD",
        "RESIZE_NEAREST_NEIGHBOR", "REVERSE_V2", "SCATTER_ND", "SELECT_V2", "SIGN", "SPLIT_V",
        "STRIDED_SLICE", "TILE", "TOPK_V2",
    }
)  # fmt: skip
"""Operators that the XNNPACK delegate of LiteRT 2.3 leaves to the plain kernels, measured over the
conformance cases; it also leaves integers, and CONCATENATION of more than CONCATENATION_INPUTS operands."""


def check_model(model: ir.Model, profile: Profile) -> list[Finding]:
    """What has no form in TFLite, and what leaves the fast path."""
    builder, findings = _lowered(model, "fp32")
    findings = [_for_profile(finding, profile) for finding in findings]
    if errors(findings):
        return findings
    return [*findings, *_warnings(builder.graph.pruned(), profile)]


def compile_model(model: ir.Model, profile: Profile, precision: str) -> Artifact:
    """Compile the canonical model.

    Args:
        model: Opset 23, static shapes on every value, constants as initializers.
        profile: Whom the findings are said for.
        precision: ``fp32``, or ``fp16``: weights in float16, arithmetic in float32.

    Raises:
        UnsupportedError: some nodes have no form here; all are named.
    """
    builder, findings = _lowered(model, precision)
    wrong = [_for_profile(finding, profile) for finding in errors(findings)]
    if wrong:
        noun = "node has" if len(wrong) == 1 else "nodes have"
        lines = "\n".join(as_lines(wrong))
        raise UnsupportedError(f"{profile.name}: {len(wrong)} {noun} no form in TFLite\n{lines}", wrong)
    graph = builder.graph.pruned()
    inputs = [str(value.name) for value in model.graph.inputs]
    outputs = [str(value.name) for value in model.graph.outputs]
    options = {
        "signature": SIGNATURE,
        "inputs": [_described(graph, i, name) for i, name in zip(graph.inputs, inputs, strict=True)],
        "outputs": [_described(graph, o, name) for o, name in zip(graph.outputs, outputs, strict=True)],
    }
    return Artifact({FILE: pack(graph, inputs, outputs)}, options, _facts(graph))


def _lowered(model: ir.Model, precision: str) -> tuple[Builder, list[Finding]]:
    """The lowered graph, and a finding for each node and input without a form."""
    builder = Builder(precision)
    findings = _dynamic(model)
    if findings:
        return builder, findings
    graph = model.graph
    builder.plan = plan_integers(graph)
    for value in graph.inputs:
        try:
            builder.add_input(value)
        except Inexpressible as reason:
            name = str(value.name)
            findings.append(Finding(reason.code, "error", lower.target, name, "", reason.why, reason.fix))
            builder.bind_unknown(value)
    findings += lower.lower(builder, graph, opset_of(model.opset_imports.items()))
    if not findings:
        for value in graph.outputs:
            builder.add_output(value)
    return builder, findings


def _dynamic(model: ir.Model) -> list[Finding]:
    """A finding for each input and node output whose shape is not static."""
    found = []
    values = [(str(value.name), "", value) for value in model.graph.inputs]
    values += [(str(o.name), node.op_type, o) for node in model.graph for o in node.outputs if o.name]
    for name, op, value in values:
        if static_shape(value) is None:
            shape = "unknown" if value.shape is None else str(value.shape)
            why = f"the shape of {name} is {shape}, not static"
            fix = "freeze the inputs with --shape" if op else f"freeze it with --shape {name}=..."
            found.append(Finding("EK1003", "error", lower.target, name, op, why, fix))
    return found


def _for_profile(finding: Finding, profile: Profile) -> Finding:
    return Finding(**{**finding.as_json(), "target": profile.name})  # type: ignore[arg-type]


def _warnings(graph: Graph, profile: Profile) -> list[Finding]:
    """What leaves the fast path: operators XNNPACK does not take, and data that is moved."""
    found = []
    for op in graph.ops:
        if op.code == "TRANSPOSE":
            size = _size_bytes(graph, op)
            why = f"{size} bytes are transposed: {op.why}"
            found.append(Finding("EK1102", "warning", profile.name, op.node, op.code, why))
        elif _leaves_xnnpack(graph, op):
            why = f"XNNPACK does not take {_titled(graph, op)}; a plain kernel runs it"
            found.append(Finding("EK1101", "warning", profile.name, op.node, op.code, why))
    return found


def _described(graph: Graph, tensor: int, name: str) -> dict[str, Json]:
    """How a source input or output is found in the file: by its signature name, in the source's layout."""
    made = graph.tensors[tensor]
    return {"name": name, "signature_name": name, "dtype": made.dtype, "shape": list(made.shape)}


def _facts(graph: Graph) -> dict[str, Json]:
    """What the report says about the compilation."""
    counts = Counter(op.code for op in graph.ops)
    transposes = [
        {"node": op.node, "size_bytes": _size_bytes(graph, op), "why": op.why}
        for op in graph.ops
        if op.code == "TRANSPOSE"
    ]
    outside = [{"node": op.node, "op": _titled(graph, op)} for op in graph.ops if _leaves_xnnpack(graph, op)]
    return {
        "ops": dict(sorted(counts.items())),
        "transposes": transposes,
        "transposed_bytes": sum(_size_bytes(graph, op) for op in graph.ops if op.code == "TRANSPOSE"),
        "outside_xnnpack": outside,
    }


def _leaves_xnnpack(graph: Graph, op: Op) -> bool:
    dtype = graph.tensors[op.outputs[0]].dtype
    if op.code == "CONCATENATION" and len(op.inputs) > CONCATENATION_INPUTS:
        return True
    return op.code in OUTSIDE_XNNPACK or (dtype in ("int32", "bool") and op.code != "RESHAPE")


def _titled(graph: Graph, op: Op) -> str:
    """The operator and what of it XNNPACK does not take."""
    if op.code in OUTSIDE_XNNPACK:
        return op.code
    if op.code == "CONCATENATION" and len(op.inputs) > CONCATENATION_INPUTS:
        return f"{op.code} of {len(op.inputs)}"
    return f"{op.code} of {graph.tensors[op.outputs[0]].dtype}"


def _size_bytes(graph: Graph, op: Op) -> int:
    tensor = graph.tensors[op.outputs[0]]
    return prod(tensor.shape) * np.dtype(tensor.dtype).itemsize
