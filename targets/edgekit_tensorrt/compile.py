"""Make ``model.onnx``, ``trt.json`` and the golden vector: what a Jetson needs to build its own engine.

    canonical graph  opset 23
      -> float16 by the types of the graph, for fp16                     fp16_graph
      -> operators that came after opset 20 written with older ones      compiler.passes.expand_functions
      -> Q/DQ pairs in the one form that TensorRT takes                  quantized_forms
      -> resizes that it has no layer for, as products with matrices     compiler.passes.write_out_resize
      -> no 8-bit integers but at the interface and in pairs             narrow_types
      -> opset 19, or 20 if an operator of 20 is in it                   compiler.lowering.opset_downgrade
      -> checked by every rule and, if installed, by NVIDIA's compiler   rules, acceptance

Opset 19: the parser of 10.3 ends at 20, and 19 is the first with float8 for what may come.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from edgekit.compiler.lowering.opset_downgrade import nodes_changed_since, with_opset
from edgekit.compiler.lowering.shape_range import with_range
from edgekit.compiler.lowering.shared_transposes import with_shared_transposes
from edgekit.compiler.model.onnx_file import save_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.model.rewriting import node_name
from edgekit.compiler.passes.expand_functions import with_expansions
from edgekit.compiler.passes.write_out_resize import write_out_resize
from edgekit.diagnostics import Finding, cannot_run, errors
from edgekit.errors import EngineError, UsageError, index_line
from edgekit.system.formats import strict_json
from edgekit.system.formats.npy import npy_bytes
from edgekit.target import Artifact, TargetInfo
from edgekit.target.profile import Profile
from edgekit.tensor_spec import Json
from edgekit_tensorrt import reference_executor
from edgekit_tensorrt.acceptance import ask_compiler
from edgekit_tensorrt.device.golden import INTEGERS, golden_feeds, golden_file, golden_sha256, thinned
from edgekit_tensorrt.device.presence import COMPILER_EXTRA, compiler_version
from edgekit_tensorrt.fp16_graph import WEIGHTED_OPS, with_fp16_arithmetic
from edgekit_tensorrt.narrow_types import pairs_in_float, without_narrow_values
from edgekit_tensorrt.operators import NEWEST_OPSET
from edgekit_tensorrt.quant_rules import rules
from edgekit_tensorrt.quantized_forms import symmetric_pairs
from edgekit_tensorrt.rules import broken_rules, resize_without_layer
from edgekit_tensorrt.run import FLOOR, MODEL_FILE, SETTINGS_FILE

PRECISIONS = ("fp32", "fp16", "int8", "fp8")
"""int8 and fp8 are for models with Q/DQ pairs: what is left in float is computed in float16. fp8 is E4M3,
which Thor has and Orin does not: https://docs.nvidia.com/deeplearning/tensorrt/latest/inference-library/
work-quantized-types.html"""
OPSETS = (19, NEWEST_OPSET)
NEWER = ("Attention", "GroupNormalization", "RMSNormalization")
"""Operators that came after opset 20, or changed: the floor's parser does not read them.

NVIDIA's compiler of 2026 has a kernel for Attention, but not for every shape: it takes PP-OCRv4's recognition
in float16 and refuses it in float32. It fuses the two products and the Softmax by itself if it has one.
"""
WORKSPACE_MB = 1024
"""Memory that the builder may use for one layer's scratch. Convolutions of phone-sized networks need far
less; on a Jetson it comes out of the memory that the app has."""


def check_model(model: ir.Model, profile: Profile) -> list[Finding]:
    """Return the findings for the rules that the model violates when compiled in fp32."""
    return _written(model, profile, "fp32")[1]


def compile_model(model: ir.Model, profile: Profile, precision: str) -> Artifact:
    """Compile the canonical model to ``model.onnx`` with ``trt.json``.

    Raises:
        UsageError: an unknown precision.
        ModelError: the model is over 2 GB.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"tensorrt supports {', '.join(PRECISIONS)}, not {precision}")
    emitted, findings = _written(model, profile, precision)
    if errors(findings):
        raise cannot_run(profile.name, errors(findings))
    emitted = with_shared_transposes(emitted)
    content = save_model(emitted)
    executed = _executed(emitted, precision)
    int8 = quantized_nodes(emitted)
    facts: dict[str, Json] = {"nodes": len(emitted.graph), "warnings": [f.as_json() for f in findings]}
    facts["acceptance"] = _acceptance(content, int8, executed, profile)
    integers, sha256, golden = _golden(emitted)
    settings: dict[str, Json] = {
        "floor": ".".join(map(str, FLOOR)),
        "workspace_mb": WORKSPACE_MB,
        executed if executed == "fp8" else "int8": int8,
        "golden_integers": integers,
        "golden_sha256": sha256,
    }
    files = {MODEL_FILE: content, SETTINGS_FILE: strict_json.encode(settings), **golden}
    options: dict[str, Json] = {"precision": executed, "prepared_on_device": True}
    return Artifact(files, options, facts)


def compile_range(
    models: Sequence[ir.Model], sizes: Sequence[int], profile: Profile, precision: str
) -> Artifact:
    """Compile the model at some sizes of a range to one file with an open dimension: the device builds one
    engine of it, with an optimization profile. The golden vector is of the largest size.

    Raises:
        EngineError: it has another form at another size, or TensorRT has no form of what is computed.
        Others as :func:`compile_model`.
    """
    artifact = compile_model(models[-1], profile, precision)
    written = [with_shared_transposes(_written(model, profile, precision)[0]) for model in models]
    ranged = with_range(written, sizes)
    for finding in errors(broken_rules(ranged, profile.name, ranged=True)):
        raise EngineError(f"node {finding.node} ({finding.op}): {finding.message}")
    notes = ["its optimization profile was not built by TensorRT: accepted is the largest shape"]
    return artifact._replace(
        files={**artifact.files, MODEL_FILE: save_model(ranged)}, facts={**artifact.facts, "notes": notes}
    )


def _golden(emitted: ir.Model) -> tuple[str, str, dict[str, bytes]]:
    """Return the golden inputs' kind of integers, the vector's digest, and the host's outputs as files."""
    inputs, outputs = signature(emitted)
    reference = Reference(reference_executor.with_roundings(emitted))
    for integers in INTEGERS:
        feeds = golden_feeds(inputs, integers)
        try:
            results = reference.run(feeds)
        except EngineError:
            if integers == INTEGERS[-1]:
                raise
            continue
        break
    files = {golden_file(k): npy_bytes(thinned(results[s.name])) for k, s in enumerate(outputs)}
    return integers, golden_sha256(feeds, list(files.values())), files


def _written(model: ir.Model, profile: Profile, precision: str) -> tuple[ir.Model, list[Finding]]:
    """Return the graph as it is written to the file, and its findings.

    A node that violates a rule is replaced by its function body if it has one, and checked again.
    """
    graph = model if precision == "fp32" else with_fp16_arithmetic(model)
    emitted, findings = with_expansions(
        graph, lambda graph_model: _emitted(graph_model, profile), lambda node: node.op_type in NEWER
    )
    return emitted, [*findings, *pairs_in_float(model, emitted, profile.name)]


def _emitted(model: ir.Model, profile: Profile) -> tuple[ir.Model, list[Finding]]:
    graph = model.clone()
    symmetric_pairs(graph)
    write_out_resize(graph, lambda node: resize_without_layer(node) is not None)
    without_narrow_values(graph)
    for opset in OPSETS:
        older = with_opset(graph, opset)
        if older is not None:
            return older, [*broken_rules(older, profile.name), *_float8_lacking(older, profile)]
    findings = [*broken_rules(graph, profile.name), *_float8_lacking(graph, profile)]
    named = {finding.node for finding in errors(findings)}
    for node in nodes_changed_since(graph, NEWEST_OPSET):
        if node_name(node) not in named:
            text = f"opset {NEWEST_OPSET}, the newest that TensorRT 10.3 reads, does not have this form of it"
            findings.append(Finding("EK1002", "error", profile.name, node_name(node), node.op_type, text))
    return graph, findings


def _float8_lacking(model: ir.Model, profile: Profile) -> list[Finding]:
    fast = profile.facts.get("precisions")
    if fast is not None and "fp8" in fast.value:
        return []
    text, fix = "float8, which its chip does not have", "quantize to int8 with zero point 0"
    return [
        Finding("EK1002", "error", profile.name, node_name(node), node.op_type, text, fix)
        for node in model.graph
        if node.op_type == "QuantizeLinear" and node.outputs[0].dtype == ir.DataType.FLOAT8E4M3FN
    ]


def quantized_nodes(model: ir.Model) -> list[str]:
    """Return the names of nodes meant to run on int8 or fp8: both sides come from a DequantizeLinear."""
    names = []
    for node in model.graph:
        if node.op_type in WEIGHTED_OPS and len(node.inputs) > 1:
            makers = [value.producer() for value in node.inputs[:2] if value is not None]
            if all(maker is not None and maker.op_type == "DequantizeLinear" for maker in makers):
                names.append(str(node.name))
    return names


def _acceptance(content: bytes, quantized: list[str], executed: str, profile: Profile) -> dict[str, Json]:
    if compiler_version() is None:
        return {"by": None, "why": f"NVIDIA's compiler is not installed here: {index_line(COMPILER_EXTRA)}"}
    report = ask_compiler(content, quantized)
    if not report.accepted and not report.unjudged:
        findings = [
            Finding("EK1002", "error", profile.name, node, op, f"{report.version} rejects it: {message}")
            for node, op, message in report.refusals
        ]
        raise cannot_run(profile.name, findings)
    return report.as_json(quantized, "fp8" if executed == "fp8" else "int8")


def _executed(model: ir.Model, precision: str) -> str:
    stored = {node.outputs[0].dtype for node in model.graph if node.op_type == "QuantizeLinear"}
    if ir.DataType.FLOAT8E4M3FN in stored:
        return "fp8"
    return "int8" if stored else precision


TARGET = TargetInfo(
    PRECISIONS,
    quantization_rules=rules,
    reference_executor=reference_executor,
    compile_range=compile_range,
    deepstream="edgekit_tensorrt.deepstream",
)
