"""Canonical model -> model.tflite: lower, prune unused tensors, serialize.

A model is checked by lowering it, so the check and the compilation cannot disagree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import onnx_ir as ir

from edgekit.compiler.lowering.byte_pairs import with_bytes_read
from edgekit.compiler.lowering.fp16_types import narrowed_floats
from edgekit.compiler.lowering.io_layouts import LAYOUTS
from edgekit.compiler.lowering.op_table import open_shapes, refuse
from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.rewriting import opset_of
from edgekit.compiler.passes.expand_functions import with_expansions
from edgekit.diagnostics import Finding, Inexpressible, errors
from edgekit.target import Artifact, TargetInfo
from edgekit.target.profile import Profile
from edgekit.tensor_spec import Json
from edgekit_tflite import (  # noqa: F401  (importing the ops fills the table)
    ops_activation,
    ops_conv,
    ops_index,
    ops_inverse,
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
from edgekit_tflite.app import app_files
from edgekit_tflite.builder import Builder, lower
from edgekit_tflite.demand import io_perm
from edgekit_tflite.facts import facts_of, warnings_of
from edgekit_tflite.flatbuffer import SIGNATURE, Program, pack
from edgekit_tflite.graph import Graph
from edgekit_tflite.integer import plan_integers
from edgekit_tflite.integer_rules import RULES
from edgekit_tflite.layout import identity
from edgekit_tflite.npu import npu_files
from edgekit_tflite.plain_rules import PLAIN_RULES
from edgekit_tflite.quant_rules import rules
from edgekit_tflite.shared_weights import share_weights

PRECISIONS = ("fp32", "fp16", "fp16-arithmetic", "int8-weights", "int8-dynamic")
INSTRUCTION_SETS = {"fp16-arithmetic": ("asimdhp",)}
"""ARMv8.2's half precision, which XNNPACK computes with if a file permits it (flatbuffer.FP16_ALLOWED)."""
MULTIPLIED = {"int8-weights": "fp32", "int8-dynamic": "int8", "fp16-arithmetic": "fp16"}
"""Precision -> the precision of the arithmetic."""
FILE = "model.tflite"


def check_model(model: ir.Model, profile: Profile) -> list[Finding]:
    """Find nodes that TFLite cannot express, and nodes that leave the fast path."""
    builder, findings = _lowered(model, "fp32", _is_plain(profile))
    findings = [replace(finding, target=profile.name) for finding in findings]
    if errors(findings):
        return findings
    warned = warnings_of(builder, builder.graph.pruned(), profile)
    return [*findings, *warned, *narrowed_floats(model, profile.name)]


def compile_model(
    model: ir.Model, profile: Profile, precision: str, others: Mapping[str, ir.Model] | None = None
) -> Artifact:
    """Compile the canonical model.

    Args:
        precision: ``fp32``, or ``fp16``: weights in float16, arithmetic in float32. ``fp16-arithmetic``:
            both in float16, the latter if the processor has it. With integer weights:
            ``int8-weights`` computes with floats; ``int8-dynamic`` has the kernel quantize the activations at
            run time.
        others: Further models in the same file, by the key of their signature; equal constants are stored
            once. The artifact's options and facts are those of ``model``.

    Raises:
        UnsupportedError: TFLite cannot express some nodes; all are named.
    """
    model, narrow = with_bytes_read(model), precision in INSTRUCTION_SETS
    form = "fp16" if narrow else precision
    builder, graph = _program(model, profile, form)
    further = [
        Program(_program(item, profile, form)[1], *_names(item), key) for key, item in (others or {}).items()
    ]
    options: dict[str, Json] = {
        "signature": SIGNATURE,
        "inputs": [_described(graph, i, v) for i, v in zip(graph.inputs, model.graph.inputs, strict=True)],
        "outputs": [_described(graph, o, v) for o, v in zip(graph.outputs, model.graph.outputs, strict=True)],
    }
    quantized = any(node.op_type == "QuantizeLinear" for node in model.graph)
    options["precision"] = MULTIPLIED.get(precision, "int8" if quantized else "fp32")
    if narrow:
        options["needs_isa"] = list(INSTRUCTION_SETS[precision])
    return Artifact(
        {FILE: pack(graph, *_names(model), others=further, fp16_arithmetic=narrow)},
        options,
        facts_of(builder, graph),
    )


def _program(model: ir.Model, profile: Profile, precision: str) -> tuple[Builder, Graph]:
    builder, findings = _lowered(model, precision, _is_plain(profile))
    wrong = [replace(finding, target=profile.name) for finding in errors(findings)]
    refuse(profile.name, wrong, "no form in TFLite")
    return builder, builder.graph.pruned()


def _names(model: ir.Model) -> tuple[list[str], list[str]]:
    inputs, outputs = model.graph.inputs, model.graph.outputs
    return [str(value.name) for value in inputs], [str(value.name) for value in outputs]


def _is_plain(profile: Profile) -> bool:
    """Check whether the profile's device lacks XNNPACK, so that plain kernels run the file."""
    delegates = profile.facts.get("delegates")
    return delegates is not None and "XNNPACK" not in delegates.value


def _lowered(model: ir.Model, precision: str, plain: bool) -> tuple[Builder, list[Finding]]:
    """Lower the graph; return the builder and a finding for each node and input that cannot be expressed.

    A node without a form is replaced by its function body if it has one, on a copy, and lowered again.
    """
    opset = opset_of(model.opset_imports.items())
    return with_expansions(
        model,
        lambda graph_model: _lowered_once(graph_model, precision, plain),
        lambda node: lower.find(node, opset) is None,
    )


def _lowered_once(model: ir.Model, precision: str, plain: bool) -> tuple[Builder, list[Finding]]:
    builder = Builder(precision)
    builder.plain = plain
    graph, dynamic = model.graph, open_shapes(model, lower.target)
    if any(static_dims(value) is None for value in graph.inputs):
        return builder, dynamic
    findings = []
    builder.plan = plan_integers(graph, PLAIN_RULES if plain else RULES)
    for value in graph.inputs:
        try:
            builder.add_input(value)
        except Inexpressible as reason:
            name = str(value.name)
            findings.append(Finding(reason.code, "error", lower.target, name, "", reason.reason, reason.fix))
            builder.bind_unknown(value)
    findings += lower.lower(builder, graph, opset_of(model.opset_imports.items()), dynamic)
    if not findings:
        for value in graph.outputs:
            builder.add_output(value)
    return builder, findings


def _described(graph: Graph, tensor: int, value: ir.Value) -> dict[str, Json]:
    """Describe a source input or output in the file, by its signature name.

    ``order``: the source axis that each stored axis holds, if that is not the source's own order.
    """
    stored, name, perm = graph.tensors[tensor], str(value.name), io_perm(value)
    described = {"name": name, "signature_name": name, "dtype": stored.dtype, "shape": list(stored.shape)}
    return described if perm == identity(len(perm)) else {**described, "order": list(perm)}


TARGET = TargetInfo(
    PRECISIONS,
    io_layouts=LAYOUTS,
    quantization_rules=rules,
    app_files=app_files,
    npu_files=npu_files,
    instruction_sets=INSTRUCTION_SETS,
    decoder="edgekit_tflite.compile_decoder",
    stores_rows=True,
    share_weights=share_weights,
)
